-- rightsizer.lua: what job_submit.lua and cli_filter.lua share. Pure: text in, tables out; no file, no socket.
-- Written for Lua 5.1 to 5.4. Numbers that Slurm has not set are 65534, 4294967294 or 1.8e19.

local M = { VERSION = 1, LONGEST_COMMENT = 1024, LONGEST_ANSWER = 8192 }

local MODES = { off = 0, warn = 1, size = 2, enforce = 3 }
local DEFAULTS = { mode = "size", socket = "/run/rightsizer/plan.sock", timeout_s = 0.3, cooldown_s = 30 }
local BOUNDS = { timeout_s = { 0.01, 5 }, cooldown_s = { 0, 3600 } }

-- What an answer may set, and the largest value taken. Anything else is dropped.
local LARGEST = {
   min_nodes = 16384, max_nodes = 16384, num_tasks = 1048576, cpus_per_task = 4096, min_cpus = 16777216,
   time_limit = 527040, priority = 0,
}
local TEXTS = {
   gres = "^gpu:[%w_%.%-]-:?%d%d?%d?%d?$",
   partition = "^[%w_%.%-]+$",
   admin_comment = "^rightsizer/1 [%w _%.=:,/+%%@~%-]*$",
   tres_per_job = "^$",
}

function M.clean(value)
   -- One line of printable characters: nothing in it can forge a line of a log, a terminal or a request.
   return (tostring(value == nil and "" or value):gsub("[^\32-\126]", " "))
end

function M.number(value)
   -- A number as Slurm's Lua gives it; nil where it is not set.
   if type(value) ~= "number" or value ~= value or value < 0 then return nil end
   if value == 65534 or value == 65535 or value >= 4294967294 or value ~= math.floor(value) then return nil end
   return value
end

function M.config(text)
   -- key = value lines, # comments, [partition NAME] sections. Returns the settings and a list of complaints.
   local settings, complaints, section = { partitions = {} }, {}, nil
   for key, value in pairs(DEFAULTS) do settings[key] = value end
   for line in (tostring(text or "") .. "\n"):gmatch("(.-)\r?\n") do
      line = line:gsub("#.*$", ""):gsub("^%s+", ""):gsub("%s+$", "")
      local name = line:match("^%[%s*([^%]]-)%s*%]$")
      local key, value = line:match("^([%w_]+)%s*=%s*(.*)$")
      if name then
         section = name
      elseif key then
         M.set(settings, section, key, value, complaints)
      elseif line ~= "" and (section == nil or section:find("^partition%s")) then
         complaints[#complaints + 1] = "not understood: " .. M.clean(line)
      end
   end
   return settings, complaints
end

function M.set(settings, section, key, value, complaints)
   -- One setting; sections and keys that are the daemon's are left to it.
   local partition = section and section:match("^partition%s+([%w_%.%-]+)$")
   if key == "mode" and not MODES[value] then
      complaints[#complaints + 1] = "mode is off, warn, size or enforce, not " .. M.clean(value)
   elseif partition and key == "mode" then
      settings.partitions[partition] = value
   elseif section == nil and BOUNDS[key] then
      local number = tonumber(value)
      if number and number >= BOUNDS[key][1] and number <= BOUNDS[key][2] then
         settings[key] = number
      else
         complaints[#complaints + 1] = key .. " is out of bounds: " .. M.clean(value)
      end
   elseif section == nil and DEFAULTS[key] then
      settings[key] = value
   end
end

function M.mode(settings, partitions)
   -- The strictest mode of a job's partitions ("a,b"); the general one where none is known.
   local strictest
   for name in tostring(partitions or ""):gmatch("[^,]+") do
      local mode = settings.partitions[name] or settings.mode
      if not strictest or MODES[mode] > MODES[strictest] then strictest = mode end
   end
   return strictest or settings.mode
end

function M.may_ask(settings)
   -- Whether any partition has a mode but off.
   if settings.mode ~= "off" then return true end
   for _, mode in pairs(settings.partitions) do
      if mode ~= "off" then return true end
   end
   return false
end

function M.spec(comment)
   -- The part of a comment behind "rightsizer:", or nil; and what is wrong with it, or nil.
   if type(comment) ~= "string" then return nil end
   local spec = comment:match("^%s*rightsizer:(.*)$")
   if not spec then return nil end
   if #comment > M.LONGEST_COMMENT then
      return spec, "the comment has more than " .. M.LONGEST_COMMENT .. " characters; write plan=FILE"
   end
   local foreign = spec:match("[^%w ._=:,/+@%%~\"'%-]")
   if foreign and foreign ~= "\t" then
      return spec, "the comment has a character that cannot be in it: " .. M.clean(foreign)
   end
   return (spec:gsub("\t", " "))
end

function M.sized_before(spec)
   -- rightsizer's own commands write run=; they sized the job when they made it.
   return (" " .. spec):find("%srun=") ~= nil
end

function M.wants_gpus(job)
   -- Whether a request names GPUs at all.
   for _, key in ipairs({ "gres", "tres_per_job", "tres_per_task", "tres_per_socket" }) do
      if M.clean(job[key]):find("gpu", 1, true) then return true end
   end
   return false
end

function M.request(fields)
   -- The question to the daemon: a list of {key, value}; values are made one line, numbers not set are left out.
   local lines = { "RIGHTSIZER " .. M.VERSION .. " PLAN" }
   for _, field in ipairs(fields) do
      local key, value = field[1], field[2]
      if type(value) == "number" then
         value = M.number(value)
         if value then lines[#lines + 1] = key .. "=" .. string.format("%d", value) end
      elseif value ~= nil and value ~= "" then
         lines[#lines + 1] = key .. "=" .. M.clean(value)
      end
   end
   lines[#lines + 1] = "END"
   return table.concat(lines, "\n") .. "\n"
end

function M.answer(text)
   -- {verdict=, say=, set={}, env={}} of a whole answer; nil and why where it is not one.
   if type(text) ~= "string" or text == "" then return nil, "no answer" end
   if #text > M.LONGEST_ANSWER then return nil, "the answer is too long" end
   if not text:find("\nEND\n$") then return nil, "the answer broke off" end
   local version, verdict = text:match("^RIGHTSIZER (%d+) (%u+)\n")
   if not version then return nil, "the answer is not understood" end
   if tonumber(version) ~= M.VERSION then return nil, "the daemon speaks version " .. version end
   if verdict ~= "OK" and verdict ~= "REFUSE" and verdict ~= "HOLD" and verdict ~= "KEEP" then
      return nil, "the daemon says " .. M.clean(verdict):sub(1, 40)
   end
   local answer = { verdict = verdict, say = "", set = {}, env = {} }
   for line in text:gmatch("([^\n]*)\n") do
      local key, value = line:match("^([%w_%.]+)=(.*)$")
      if key then
         local wrong = M.take(answer, key, value)
         if wrong then return nil, wrong end
      end
   end
   return answer
end

function M.take(answer, key, value)
   -- One line of an answer; what is wrong with it, if anything. One bad line spoils the whole answer.
   local number = LARGEST[key] and value:match("^%d+$") and tonumber(value)
   local variable = key:match("^env%.(RIGHTSIZER_[%u%d_]+)$")
   if key == "say" then
      answer.say = M.clean(value):sub(1, 1000)
   elseif number and number <= LARGEST[key] then
      answer.set[key] = number
   elseif TEXTS[key] and #value <= 200 and value:find(TEXTS[key]) then
      answer.set[key] = value
   elseif variable and #value <= 200 and value:find("^[%w_%.:,/=+%-]*$") then
      answer.env[variable] = value
   else
      return "the answer sets what it may not: " .. M.clean(line or key):sub(1, 60)
   end
   return nil
end

function M.exceeds(set, asked)
   -- Whether an answer goes beyond what the user wrote; what it is, or nil.
   local nodes, limit = M.number(asked.max_nodes), M.number(asked.time_limit)
   if set.max_nodes and set.min_nodes and set.min_nodes > set.max_nodes then return "min_nodes" end
   if nodes and nodes > 0 and (set.max_nodes or set.min_nodes or 0) > nodes then return "nodes" end
   if limit and limit > 0 and (set.time_limit or 0) > limit then return "time_limit" end
   if asked.partition and asked.partition ~= "" and set.partition then
      if not ("," .. asked.partition .. ","):find("," .. set.partition .. ",", 1, true) then return "partition" end
   end
   return nil
end

function M.minutes(text)
   -- Minutes of sbatch's --time: 90, 90:00, 1:30:00, 1-12, 1-12:30, 1-12:30:00; nil where it is none.
   local days, rest = tostring(text or ""):match("^(%d+)%-(.+)$")
   rest = rest or tostring(text or "")
   local parts = {}
   for part in rest:gmatch("[^:]+") do
      if not part:find("^%d+$") then return nil end
      parts[#parts + 1] = tonumber(part)
   end
   if #parts == 0 or #parts > 3 then return nil end
   if days then return tonumber(days) * 1440 + parts[1] * 60 + (parts[2] or 0) + (parts[3] and parts[3] > 0 and 1 or 0) end
   if #parts == 3 then return parts[1] * 60 + parts[2] + (parts[3] > 0 and 1 or 0) end
   return parts[1] + ((parts[2] or 0) > 0 and 1 or 0)
end

return M
