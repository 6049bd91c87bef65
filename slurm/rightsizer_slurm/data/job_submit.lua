-- job_submit.lua: sizes a job by its comment, "rightsizer: model=... tokens=... deadline=...".
-- Runs in slurmctld under its locks: one request to the daemon over a unix socket, at most 0.3 s. After a timeout
-- it sends none for 30 s. On every error the job is submitted unchanged, except in the mode enforce: there a GPU job
-- without a response is held or refused, whatever fails. See docs/slurm.md.

local folder = (debug.getinfo(1, "S").source:match("^@(.*/)")) or "/etc/slurm/"
local loaded, shared = pcall(dofile, folder .. "rightsizer.lua")
local has_socket, unix = pcall(require, "socket.unix")
local stream = has_socket and (type(unix) == "table" and unix.stream or unix) or nil

local settings           -- of the last rightsizer.conf without a fault; nil until there is one
local known              -- its text
local read_at = 0        -- time of the last read; a change takes effect a second later
local told = ""          -- what was logged about rightsizer.conf last
local silent_until = 0   -- no request before this time; reset when slurmctld reloads this file
local faults = 0         -- jobs that could not be sized since then

local REQUESTS = { "gres", "tres_per_node", "tres_per_job", "tres_per_task", "tres_per_socket" }
local EXCLUSIVE = 0      -- job_desc.shared; 65534 if the user wrote nothing
local LONGEST_CONF = 65536
local CODES = { time = "ESLURM_INVALID_TIME_LIMIT", nodes = "ESLURM_INVALID_NODE_COUNT",
   policy = "ESLURM_ACCOUNTING_POLICY", comment = "ESLURM_JOB_MISSING_SIZE_SPECIFICATION",
   denied = "ESLURM_ACCESS_DENIED" }
local UNAVAILABLE = 2014   -- ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE, which Slurm does not export to Lua

local function error_code(name)
   -- The error that sbatch prints below our line.
   if name == "size" then return UNAVAILABLE end
   return CODES[name] and slurm[CODES[name]] or slurm.ERROR
end

local function print_to_user(text)
   slurm.log_user("rightsizer: %s", text)
end

local function log(text)
   slurm.log_info("rightsizer: %s", text)
end

local function read(path, longest)
   -- The text of a file; nil if it cannot be read or is longer.
   local file = path and io.open(path, "r")
   if not file then return nil end
   local text = file:read(longest + 1)
   file:close()
   return text and #text <= longest and text or nil
end

local function last_path()
   -- Where the plugin keeps the last good rightsizer.conf: beside the state of slurmctld.
   for line in ((read(folder .. "slurm.conf", 4194304) or "") .. "\n"):gmatch("([^\n]*)\n") do
      local key, value = line:match("^%s*(%a+)%s*=%s*(%S+)")
      if key and key:lower() == "statesavelocation" then return value .. "/rightsizer.conf.last" end
   end
   return nil
end

local last = last_path()

local function keep(text)
   if not last or read(last, LONGEST_CONF) == text then return end
   local file = io.open(last .. ".new", "w")
   local done = file and file:write(text) and file:close() and os.rename(last .. ".new", last)
   if not done then log(last .. " cannot be written: a restart of slurmctld without rightsizer.conf forgets the modes") end
end

local function configure(now)
   -- Read rightsizer.conf. While it is missing or wrong the last good one counts, also after a restart of slurmctld.
   if now == read_at then return end
   read_at = now
   local text, fresh, complaints = read(folder .. "rightsizer.conf", LONGEST_CONF), nil, { "cannot be read" }
   if text then fresh, complaints = shared.config(text) end
   local complaint = table.concat(complaints, "; ")
   if complaint ~= told and complaint ~= "" then log("rightsizer.conf: " .. complaint) end
   told = complaint
   if complaint == "" then
      if text ~= known then keep(text) end
      settings, known = fresh, text
   elseif not known then
      local before = read(last, LONGEST_CONF)
      settings = before and shared.config(before) or fresh
      known = before
   end
end

local function wants_gpus(job)
   -- Whether a request takes GPUs: by name, or with whole nodes.
   for _, key in ipairs(REQUESTS) do
      if tostring(job[key] or ""):find("gpu", 1, true) then return true end
   end
   return job.shared == EXCLUSIVE
end

local function is_ours(job)
   return tostring(job.comment or ""):find("^%s*rightsizer:") ~= nil
end

local function comment_only(job)
   -- Whether the comment is all that the user said about the size.
   if wants_gpus(job) or shared.number(job.time_limit) then return false end
   return not (shared.number(job.min_nodes) or shared.number(job.max_nodes) or shared.number(job.num_tasks))
end

local function send(request)
   if not stream then return nil, "luasocket is not installed" end
   return shared.exchange(stream(), settings.socket, settings.timeout_s, request)
end

local function partitions_of(job, part_list)
   if job.partition and job.partition ~= "" then return job.partition end
   for name, part in pairs(part_list or {}) do
      if part.flag_default == 1 then return name end
   end
   return ""
end

local function kind_of(job)
   if job.script ~= nil then return "sbatch" end
   return job.argv ~= nil and "srun" or "salloc"
end

local function fields_of(job, spec, uid, mode)
   local node_mb, core_mb = shared.memory(job)
   return {   -- the uid as text: 65534, nobody, is no unset number
      { "comment", "rightsizer:" .. spec }, { "kind", kind_of(job) }, { "mode", mode },
      { "uid", string.format("%d", uid) }, { "user", job.user_name }, { "account", job.account or job.default_account },
      { "qos", job.qos or job.default_qos }, { "partition", job.partition }, { "reservation", job.reservation },
      { "min_nodes", job.min_nodes }, { "max_nodes", job.max_nodes }, { "num_tasks", job.num_tasks },
      { "ntasks_per_node", job.ntasks_per_node }, { "cpus_per_task", job.cpus_per_task },
      { "time_limit", job.time_limit }, { "gres", job.gres }, { "tres_per_job", job.tres_per_job },
      { "time_min", job.time_min }, { "requeues", shared.requeues(job) },
      { "array", job.array_inx }, { "priority", job.priority }, { "exclusive", job.shared },
      { "req_nodes", job.req_nodes }, { "exc_nodes", job.exc_nodes }, { "features", job.features },
      { "node_cpus", job.pn_min_cpus }, { "node_mb", node_mb }, { "core_mb", core_mb },
      { "gpu_memory", job.mem_per_tres }, { "deadline", job.deadline or shared.directive(job.script, "deadline") },
   }
end

local function hold(job, ticket, fields)
   -- The daemon finds the job by the ticket in its comment. Tickets 0, and 1 if the user holds the job, are of jobs
   -- that it does not know yet: it finds their requests in the AdminComment.
   local script = shared.with_preamble(job.script)
   if job.script ~= nil and not shared.sized_before(job.comment) then
      if script then
         job.script = script
      else
         fields[#fields + 1] = { "silent", "1" }
         print_to_user("only a shell script gets RIGHTSIZER_* as variables after a hold; this job has them in its comment")
      end
   end
   job.admin_comment = shared.appended(job.admin_comment, shared.held(fields))
   job.comment = job.comment .. " ticket=" .. ticket
   job.priority = 0
end

local function apply(job, response, fields)
   if response.verdict == "HOLD" then return hold(job, response.set.ticket, fields) end
   for key, value in pairs(response.set) do
      if key == "admin_comment" then value = shared.appended(job.admin_comment, value) end
      if key == "gres" then value = shared.beside(value, job.gres) end
      job[key] = value
   end
   if job.environment ~= nil then
      for name, value in pairs(response.env) do job.environment[name] = value end
      for name, value in pairs(shared.corrected(job.environment, response.set)) do job.environment[name] = value end
   end
   for _, key in ipairs({ "min_nodes", "max_nodes", "time_limit" }) do
      if response.set[key] and job[key] ~= response.set[key] then
         slurm.log_error("rightsizer: this Slurm did not accept %s", key)
      end
   end
end

local function refuse(text, mode, code)
   if mode == "warn" then
      print_to_user("would be refused: " .. text)
      return slurm.SUCCESS
   end
   print_to_user(text)
   return error_code(code)
end

local function policy_of(job, mode)
   -- What becomes of a job that could not be sized. on_fault is for jobs whose comment is all that they say. It does
   -- not weaken enforce, where each job is held or refused.
   if mode == "warn" then return "as-written" end
   if mode == "enforce" then return settings.on_fault == "refuse" and "refuse" or "hold" end
   return comment_only(job) and settings.on_fault or "as-written"
end

local function fault(job, why, mode, fields)
   faults = faults + 1
   local policy = policy_of(job, mode)
   log("not sized (" .. shared.clean(why) .. "), " .. policy .. "; fault " .. faults)
   if policy == "refuse" then return refuse("not sized (" .. shared.clean(why) .. "); submit it again later", mode) end
   if policy == "hold" then
      hold(job, job.priority == 0 and "1" or "0", fields)
      print_to_user("not sized (" .. shared.clean(why) .. "); the job is held until it is sized")
   else
      print_to_user("not sized (" .. shared.clean(why) .. "); the job is submitted unchanged")
   end
   return slurm.SUCCESS
end

local function no_response(job, why, mode, now, fields)
   -- Only a timeout delays slurmctld. So only after a timeout are other jobs not sized either.
   if why == "timeout" then
      silent_until = now + settings.cooldown_s
      log("no requests for " .. settings.cooldown_s .. " s")
   end
   return fault(job, why, mode, fields)
end

local function unsupported(job)
   -- Why a job with a rightsizer comment is not sized; nil if it is.
   if shared.number(job.het_job_offset) then return "heterogeneous jobs are not sized" end
   if kind_of(job) == "srun" then return "srun jobs are not sized; use sbatch or salloc" end
   if (shared.clean(job.tres_per_task) .. shared.clean(job.tres_per_socket)):find("gpu", 1, true) then
      return "jobs with --gpus-per-task or --gpus-per-socket are not sized; use --gpus-per-node"
   end
   if shared.number(job.ntasks_per_tres) or shared.clean(job.cpus_per_tres) ~= "" then
      return "jobs with --ntasks-per-gpu or --cpus-per-gpu are not sized"
   end
   return nil
end

local function taken(job, response, mode, fields)
   local exceeded = shared.exceeds(response.set, job)
   if exceeded and mode == "enforce" then return refuse("the answer exceeds your " .. exceeded, mode) end
   if exceeded then return fault(job, "the answer exceeds your " .. exceeded, mode, fields) end
   if response.verdict == "KEEP" then
      if response.code == "fault" then return fault(job, response.say, mode, fields) end
      if mode == "enforce" and wants_gpus(job) then return refuse(response.say, mode, "denied") end
      print_to_user(response.say)
   elseif mode == "warn" then
      print_to_user("not changed; would be: " .. response.say)
   else
      apply(job, response, fields)
      print_to_user(response.say)
   end
   return slurm.SUCCESS
end

local function decide(job, spec, uid, mode, now)
   local fields = fields_of(job, spec, uid, mode)
   if now < silent_until then return fault(job, "the daemon did not answer a moment ago", mode, fields) end
   local text, why = send(shared.request(fields))
   if not text then return no_response(job, why, mode, now, fields) end
   local response
   response, why = shared.response(text)
   if not response then return no_response(job, why, mode, now, fields) end
   if response.verdict == "REFUSE" then return refuse(response.say, mode, response.code) end
   return taken(job, response, mode, fields)
end

local function submit(job, part_list, uid)
   local now = os.time()
   configure(now)
   if not settings or not shared.active(settings) then return slurm.SUCCESS end
   local mode = shared.mode(settings, partitions_of(job, part_list))
   if mode == "off" then return slurm.SUCCESS end
   local enforced = mode == "enforce" and wants_gpus(job)
   local spec, wrong = shared.spec(job.comment)
   if not spec then
      if not enforced then return slurm.SUCCESS end
      return refuse('GPU jobs in this partition need --comment="rightsizer: model=... tokens=..."', mode, "comment")
   end
   if shared.sized_before(spec) and not enforced then return slurm.SUCCESS end
   if wrong then return refuse(wrong, mode, "comment") end
   local reason = unsupported(job)
   if reason then
      if enforced then return refuse(reason, mode, "denied") end
      print_to_user(reason)
      return slurm.SUCCESS
   end
   return decide(job, spec, uid, mode, now)
end

local function is_administrator(uid)
   -- root and slurmctld's own user, as whom the daemon runs.
   if uid == 0 then return true end
   local status = io.open("/proc/self/status", "r")
   local own = status and status:read("*a"):match("\nUid:%s+%d+%s+(%d+)")
   if status then status:close() end
   return own ~= nil and tonumber(own) == uid
end

local function unsized(record)
   -- Why a held job of an enforced partition must wait; nil if it has its size, or needs none.
   if (shared.number(record.priority) or 0) > 0 or shared.sized(record) then return nil end
   if is_ours(record) then return "the job is held until it is sized" end
   return wants_gpus(record) and "the job has no size; submit it again with a rightsizer comment" or nil
end

local function modify(change, record, uid)
   -- In the mode enforce a user's update may lower a job, not get around its size.
   configure(os.time())
   if not settings or is_administrator(uid) then return slurm.SUCCESS end
   local partition = change.partition or record.partition
   if shared.mode(settings, partition) ~= "enforce" then return slurm.SUCCESS end
   local reason
   local grown = shared.grows(change, record)
   local released = (shared.number(change.priority) or 0) > 0 or change.priority == 4294967295
   if shared.mode(settings, record.partition) ~= "enforce" then
      reason = "jobs cannot be moved into the partition " .. shared.clean(partition) .. "; submit it there"
   elseif grown then
      reason = "an update cannot add " .. grown .. " in this partition; submit the job again"
   elseif change.comment or released then
      reason = unsized(record)
   end
   return reason and refuse(reason, "enforce", "denied") or slurm.SUCCESS
end

local function says_enforce(text, partition)
   -- Whether the text of a rightsizer.conf enforces a partition. It needs no other file and nothing else of this one.
   local everywhere, here, section
   for written in (text .. "\n"):gmatch("(.-)\r?\n") do
      local line = written:gsub("#.*$", "")
      section = line:match("^%s*%[%s*(.-)%s*%]") or section
      local mode = line:match("^%s*mode%s*=%s*(%S+)")
      if mode and not section then everywhere = mode end
      if mode and section and section:match("^partition%s+(.+)$") == partition then here = mode end
   end
   return (here or everywhere) == "enforce"
end

local function closed(jobs, partitions)
   -- Whether GPU jobs in these partitions ("a,b") must not pass unsized, when nothing else of the plugin works.
   local wants = false
   for _, job in ipairs(jobs) do wants = wants or wants_gpus(job) or is_ours(job) end
   if not wants then return false end
   local text = known or read(folder .. "rightsizer.conf", LONGEST_CONF)
   if not (text and text:find("mode", 1, true)) then text = read(last, LONGEST_CONF) or "" end
   if partitions == "" then return says_enforce(text, "") end
   for name in partitions:gmatch("[^,]+") do
      if says_enforce(text, name) then return true end
   end
   return false
end

local function failed(why, sure, shut)
   -- After an error of our own: a refusal if the partition is closed to unsized jobs, else nothing changes.
   if sure and not shut then
      slurm.log_error("rightsizer: %s; nothing is changed", tostring(why))
      return slurm.SUCCESS
   end
   slurm.log_error("rightsizer: %s; refused, the mode is enforce", tostring(why))
   pcall(slurm.log_user, "rightsizer: %s", "GPU jobs cannot be sized here now, and this partition takes no others; "
      .. "an administrator finds the error in slurmctld's log")
   return slurm.ERROR
end

function slurm_job_submit(job_desc, part_list, submit_uid)
   local done, code = false, shared
   if loaded then done, code = pcall(submit, job_desc, part_list, submit_uid) end
   if done then return code end
   return failed(code, pcall(function() return closed({ job_desc }, partitions_of(job_desc, part_list)) end))
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
   local done, code = false, shared
   if loaded then done, code = pcall(modify, job_desc, job_rec, modify_uid) end
   if done then return code end
   return failed(code, pcall(function()
      if is_administrator(modify_uid) then return false end
      return closed({ job_desc, job_rec }, (job_desc.partition or "") .. "," .. (job_rec.partition or ""))
   end))
end

return slurm.SUCCESS
