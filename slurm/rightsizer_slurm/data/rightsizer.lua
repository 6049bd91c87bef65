-- rightsizer.lua: shared by job_submit.lua and cli_filter.lua. No global state; reads no file.
-- For Lua 5.1 to 5.4. Slurm writes an unset number as 65534, 4294967294 or 1.8e19.

local M = { VERSION = 2, LONGEST_COMMENT = 1024, LONGEST_RESPONSE = 8192 }

local MODES = { off = 0, warn = 1, size = 2, enforce = 3 }
local ON_FAULT = { ["as-written"] = true, hold = true, refuse = true }
local DEFAULTS = { mode = "size", on_fault = "as-written", socket = "/run/rightsizer/plan.sock", timeout_s = 0.3, cooldown_s = 30 }
local BOUNDS = { timeout_s = { 0.01, 5 }, cooldown_s = { 0, 3600 } }

-- The fields that a response may set, and their largest values. A response with any other field is rejected.
local LARGEST = {
   min_nodes = 16384, max_nodes = 16384, num_tasks = 1048576, cpus_per_task = 4096, min_cpus = 16777216,
   time_limit = 527040, priority = 0,
}
local TEXTS = {
   gres = "^gpu:[%w_%.%-]-:?%d%d?%d?%d?$",
   partition = "^[%w_%.%-]+$",
   admin_comment = "^%[rightsizer/1 [%w _%.=:,/+%%@~%-]*%]$",
   ticket = "^%x+$",
   tres_per_job = "^$",
}

function M.clean(value)
   -- One line of printable characters, so that it cannot forge a line of a log, a terminal or a request.
   return (tostring(value == nil and "" or value):gsub("[^\32-\126]", " "))
end

function M.number(value)
   -- A number as Slurm's Lua passes it; nil if it is not set.
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
         complaints[#complaints + 1] = "cannot parse: " .. M.clean(line)
      end
   end
   if not tostring(text or ""):find("=", 1, true) then complaints[#complaints + 1] = "it has no settings" end
   return settings, complaints
end

function M.set(settings, section, key, value, complaints)
   -- One setting. Sections and keys of the daemon are ignored.
   local partition = section and section:match("^partition%s+([%w_%.%-]+)$")
   if key == "on_fault" and not ON_FAULT[value] then
      complaints[#complaints + 1] = "on_fault is as-written, hold or refuse, not " .. M.clean(value)
   elseif key == "mode" and not MODES[value] then
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
   -- The strictest mode of a job's partitions ("a,b"); the site's mode if none has its own.
   local strictest
   for name in tostring(partitions or ""):gmatch("[^,]+") do
      local mode = settings.partitions[name] or settings.mode
      if not strictest or MODES[mode] > MODES[strictest] then strictest = mode end
   end
   return strictest or settings.mode
end

function M.active(settings)
   -- Whether any partition has a mode other than off.
   if settings.mode ~= "off" then return true end
   for _, mode in pairs(settings.partitions) do
      if mode ~= "off" then return true end
   end
   return false
end

function M.spec(comment)
   -- The part of a comment after "rightsizer:", or nil; and the error in it, or nil.
   if type(comment) ~= "string" then return nil end
   local spec = comment:match("^%s*rightsizer:(.*)$")
   if not spec then return nil end
   if #comment > M.LONGEST_COMMENT then
      return spec, "the comment has more than " .. M.LONGEST_COMMENT .. " characters; write plan=FILE"
   end
   local foreign = spec:match("[^%w ._=:,/+@%%~\"'%-]")
   if foreign and foreign ~= "\t" then
      return spec, "invalid character in the comment: " .. M.clean(foreign)
   end
   return (spec:gsub("\t", " "))
end

function M.sized_before(spec)
   -- rightsizer sbatch writes run= into the comment of a job that it has sized.
   return (" " .. spec):find("%srun=") ~= nil
end

-- The first lines of the script of a held job: Slurm cannot change the environment of a job, so the script reads
-- RIGHTSIZER_* from the comment, and drops what sbatch exported for the request as it was before. A job that was
-- released without a size says so first; it has the GPUs that its user requested, or it ends.
local PREAMBLE = [=[
unset RIGHTSIZER_NODES
export RIGHTSIZER_JOB=$SLURM_JOB_ID $(scontrol show job "$SLURM_JOB_ID" |
   grep -oE 'RIGHTSIZER_[A-Z_]*=[0-9]*|NumTasks=[0-9]+' | sed s/NumTasks/RIGHTSIZER_TASKS/)
if [ -n "${RIGHTSIZER_NODES-}" ]; then
   unset SLURM_GPUS SLURM_GPUS_PER_NODE
   [ -z "${SLURM_NTASKS-}" ] || export SLURM_NTASKS=$RIGHTSIZER_TASKS SLURM_NPROCS=$RIGHTSIZER_TASKS
else
   echo "rightsizer: $(scontrol show job "$SLURM_JOB_ID" | grep -m1 -o 'not sized: [^]]*' || echo not sized)" \
      "(${SLURM_GPUS_ON_NODE:-0} GPUs of each of $SLURM_JOB_NUM_NODES nodes, as the job was written)"
   if [ "${SLURM_GPUS_ON_NODE:-0}" = 0 ]; then echo "rightsizer: without GPUs the job ends; submit it again"; exit 1; fi
   export RIGHTSIZER_NODES=$SLURM_JOB_NUM_NODES RIGHTSIZER_GPUS_PER_NODE=$SLURM_GPUS_ON_NODE
   export RIGHTSIZER_GPUS=$((RIGHTSIZER_NODES * RIGHTSIZER_GPUS_PER_NODE))
   if [ "${SLURM_GPUS:+${SLURM_GPUS##*:}}" != "${SLURM_GPUS:+$RIGHTSIZER_GPUS}" ]; then
      echo "rightsizer: on nodes with unlike numbers of GPUs the job ends; submit it again"; exit 1
   fi
fi
]=]
local SHELLS = { sh = true, bash = true, dash = true, ksh = true, zsh = true }

function M.with_preamble(script)
   -- The script with the preamble behind its first line; nil if it is not a shell's.
   local first, rest = tostring(script or ""):match("^(#![^\n]*\n)(.*)$")
   local words = first and first:gsub("^#!%s*%S*/env%s+%-S", "#!"):gsub("^#!%s*%S*/env%s", "#!") or ""
   local shell = (words:match("^#!%s*(%S+)") or ""):match("[^/]*$")
   if not SHELLS[shell] then return nil end
   return first .. PREAMBLE .. rest
end

function M.corrected(environment, set)
   -- The variables that sbatch exported for the user's own request, for the size: srun reads them in the job.
   local nodes, gpus = set.max_nodes, (set.gres or ""):match("^gpu:(.+)$")
   local changed = {}
   if not nodes or not gpus then return changed end
   local function replace(name, value)
      if environment[name] ~= nil then changed[name] = tostring(value) end
   end
   replace("SLURM_GPUS_PER_NODE", gpus)
   replace("SLURM_GPUS", nodes * tonumber(gpus:match("%d+$")))
   local node_tasks = tonumber(environment.SLURM_NTASKS_PER_NODE or "")
   local tasks = node_tasks and nodes * node_tasks or set.num_tasks
   if tasks then
      replace("SLURM_NTASKS", tasks)
      replace("SLURM_NPROCS", tasks)
   end
   return changed
end

function M.appended(existing, note)
   -- Our note behind what others wrote into the same field.
   if existing == nil or existing == "" then return note end
   return existing .. " " .. note
end

function M.held(fields)
   -- The note of a held job in its AdminComment, which its user cannot write: the request, for a daemon that lacks it.
   local words = {}
   for _, field in ipairs(fields) do
      local value = field[2]
      if type(value) == "number" then value = M.number(value) end
      if type(value) == "number" then value = string.format("%d", value) end
      if value ~= nil and value ~= "" and field[1] ~= "comment" then
         local text = tostring(value):sub(1, 1024):gsub("[^%w._:,/+@=-]", function(letter)
            return string.format("%%%02X", letter:byte())
         end)
         words[#words + 1] = field[1] .. "=" .. text
      end
   end
   return "[rightsizer/1 held " .. table.concat(words, " ") .. "]"
end

function M.sized(record)
   -- Whether a job has its size. Only the plugin, the daemon and administrators write the AdminComment.
   return M.clean(record.admin_comment):find("[rightsizer/1 nodes=", 1, true) ~= nil
end

function M.memory(job)
   -- MB of memory of each node and of each core that the user requested. Slurm marks the latter with bit 63; a Lua
   -- number rounds what is below it to 2048.
   local value = job.pn_min_memory
   if type(value) ~= "number" or value >= 18446744073709549568 then return nil, nil end
   if value < 9223372036854775808 then return value, nil end
   return nil, value - 9223372036854775808
end

function M.directive(script, name)
   -- The value of an #SBATCH line of a script: Slurm shows plugins no deadline.
   local lines = tostring(script or ""):sub(1, 65536)
   return lines:match("\n#SBATCH%s+%-%-" .. name .. "[=%s]%s*([%w:+/.%-]+)")
end

function M.requeues(job)
   -- 1 if a batch script goes on after its time limit: it calls scontrol requeue, and its user allows that.
   if job.requeue == 0 then return nil end
   for line in tostring(job.script or ""):sub(1, 65536):gmatch("[^\n]+") do
      if (line .. " "):find("^[^#]*scontrol%s+requeue[^%w]") then return 1 end
   end
   return nil
end

function M.grows(change, record)
   -- What an update would add to a pending job of a partition where sizes are enforced; nil if nothing.
   for _, key in ipairs({ "gres", "tres_per_node", "tres_per_job", "tres_per_task", "tres_per_socket" }) do
      if M.clean(change[key]):find("gpu", 1, true) and change[key] ~= record[key] then return "GPUs" end
   end
   if change.shared == 0 then return "whole nodes" end
   local nodes = math.max(M.number(change.min_nodes) or 0, M.number(change.max_nodes) or 0)
   if nodes > math.max(M.number(record.min_nodes) or 1, M.number(record.max_nodes) or 0) then return "nodes" end
   return nil
end

function M.request(fields)
   -- The request to the daemon from a list of {key, value}. Values become one line; unset numbers are left out.
   local lines = { "RIGHTSIZER " .. M.VERSION .. " SIZE" }
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

function M.exchange(connection, path, timeout_s, request)
   -- Send a request over a unix socket (luasocket's); the text of the response, or nil and the error.
   connection:settimeout(timeout_s, "t")
   local done, why = connection:connect(path)
   if done then done, why = connection:send(request) end
   local text, partial
   if done then text, why, partial = connection:receive(M.LONGEST_RESPONSE + 1) end
   connection:close()
   -- a response is shorter than the limit, so receive() normally returns it as `partial`
   return text or (why == "closed" and partial or nil), why
end

function M.response(text)
   -- {verdict=, say=, code=, set={}, env={}} of a response; nil and the reason if it is invalid.
   if type(text) ~= "string" or text == "" then return nil, "no answer" end
   if #text > M.LONGEST_RESPONSE then return nil, "the answer is too long" end
   if not text:find("\nEND\n$") then return nil, "the answer is incomplete" end
   local version, verdict = text:match("^RIGHTSIZER (%d+) (%u+)\n")
   if not version then return nil, "the answer cannot be parsed" end
   if tonumber(version) ~= M.VERSION then return nil, "the daemon has protocol version " .. version end
   if verdict ~= "OK" and verdict ~= "REFUSE" and verdict ~= "HOLD" and verdict ~= "KEEP" then
      return nil, "unknown verdict " .. M.clean(verdict):sub(1, 40)
   end
   local response = { verdict = verdict, say = "", code = "", set = {}, env = {} }
   for line in text:gmatch("([^\n]*)\n") do
      local key, value = line:match("^([%w_%.]+)=(.*)$")
      if key then
         local wrong = M.take(response, key, value)
         if wrong then return nil, wrong end
      end
   end
   return response
end

function M.take(response, key, value)
   -- Parse one line of a response; returns the error, if any. One invalid line rejects the whole response.
   local number = LARGEST[key] and value:match("^%d+$") and tonumber(value)
   local variable = key:match("^env%.(RIGHTSIZER_[%u%d_]+)$")
   if key == "say" then
      response.say = M.clean(value):sub(1, 1000)
   elseif key == "code" then
      response.code = value
   elseif number and number <= LARGEST[key] then
      response.set[key] = number
   elseif TEXTS[key] and #value <= 200 and value:find(TEXTS[key]) then
      response.set[key] = value
   elseif variable and #value <= 200 and value:find("^[%w_%.:,/=+%-]*$") then
      response.env[variable] = value
   else
      return "the answer sets a forbidden field: " .. M.clean(key):sub(1, 60)
   end
   return nil
end

function M.exceeds(set, requested)
   -- The field in which a response exceeds the user's request, or nil.
   local nodes, limit = M.number(requested.max_nodes), M.number(requested.time_limit)
   if set.max_nodes and set.min_nodes and set.min_nodes > set.max_nodes then return "min_nodes" end
   if nodes and nodes > 0 and (set.max_nodes or set.min_nodes or 0) > nodes then return "nodes" end
   if limit and limit > 0 and (set.time_limit or 0) > limit then return "time_limit" end
   local node_gpus = M.count(set.gres)
   if M.gpus_in(requested.gres) and node_gpus > M.count(requested.gres) then return "GPUs per node" end
   local most = M.gpus_in(requested.tres_per_job) and M.count(requested.tres_per_job)
   if most and node_gpus * (set.max_nodes or 1) > most then return "GPUs" end
   if requested.partition and requested.partition ~= "" and set.partition then
      if not ("," .. requested.partition .. ","):find("," .. set.partition .. ",", 1, true) then return "partition" end
   end
   return nil
end

function M.gpus_in(text)
   -- Whether a text of generic resources names GPUs.
   return M.clean(text):find("gpu", 1, true) ~= nil
end

local function items(text)
   -- gpu:2 and nvme:1 of gres:gpu:2,gres:nvme:1; some releases write gres/gpu=2.
   local found = {}
   for item in M.clean(text):gmatch("[^,%s]+") do found[#found + 1] = (item:gsub("^gres[:/]", ""):gsub("=", ":")) end
   return found
end

function M.count(text)
   -- GPUs in gpu:h100:8, gres:gpu:2, gpu; of several types all together.
   local count = 0
   for _, item in ipairs(items(text)) do
      if (item .. ":"):find("^gpu:") then count = count + (tonumber(item:match(":(%d+)$")) or 1) end
   end
   return count
end

function M.beside(gpus, requested)
   -- The GPUs of a size and the user's other generic resources, but no shares of GPUs.
   for _, item in ipairs(items(requested)) do
      local name = item:match("^[^:]*")
      if name ~= "gpu" and name ~= "mps" and name ~= "shard" then gpus = gpus .. "," .. item end
   end
   return gpus
end

function M.minutes(text)
   -- Minutes of sbatch's --time: 90, 90:00, 1:30:00, 1-12, 1-12:30, 1-12:30:00; nil if it is invalid.
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
