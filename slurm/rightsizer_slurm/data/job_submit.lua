-- job_submit.lua: sizes a job by its comment, "rightsizer: model=... tokens=... deadline=...".
-- Runs in slurmctld under its locks: one request to the daemon over a unix socket, at most 0.3 s. After a timeout
-- it sends none for 30 s. On every error the job is submitted unchanged. See docs/slurm.md.

local folder = (debug.getinfo(1, "S").source:match("^@(.*/)")) or "/etc/slurm/"
local loaded, shared = pcall(dofile, folder .. "rightsizer.lua")
local has_socket, unix = pcall(require, "socket.unix")
local stream = has_socket and (type(unix) == "table" and unix.stream or unix) or nil

local settings           -- rightsizer.conf; nil until it has been read
local read_at = 0        -- time of the last read; a change takes effect a second later
local silent_until = 0   -- no request before this time; reset when slurmctld reloads this file
local faults = 0         -- jobs that could not be sized since then

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

local function configure(now)
   if settings and now == read_at then return end
   local file = io.open(folder .. "rightsizer.conf", "r")
   settings, read_at = nil, now
   if not file then return end
   local text = file:read(65536)
   file:close()
   local complaints
   settings, complaints = shared.config(text)
   for _, complaint in ipairs(complaints) do log("rightsizer.conf: " .. complaint) end
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

local function question(job, spec, uid, mode)
   local node_mb, core_mb = shared.memory(job)
   return shared.request({   -- the uid as text: 65534, nobody, is no unset number
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
   })
end

local function hold(job, ticket)
   -- The daemon finds the job by the ticket in its comment. Tickets 0, and 1 if the user holds the job, are of jobs
   -- that it does not know yet.
   job.comment = job.comment .. " ticket=" .. ticket
   job.priority = 0
   if job.script == nil then return end
   local script = shared.with_preamble(job.script)
   if script then
      job.script = script
   else
      print_to_user("only a shell script gets RIGHTSIZER_* as variables after a hold; this job has them in its comment")
   end
end

local function apply(job, answer)
   if answer.verdict == "HOLD" then return hold(job, answer.set.ticket) end
   for key, value in pairs(answer.set) do
      job[key] = key == "admin_comment" and shared.appended(job.admin_comment, value) or value
   end
   if job.environment ~= nil then
      for name, value in pairs(answer.env) do job.environment[name] = value end
      for name, value in pairs(shared.corrected(job.environment, answer.set)) do job.environment[name] = value end
   end
   for _, key in ipairs({ "min_nodes", "max_nodes", "time_limit" }) do
      if answer.set[key] and job[key] ~= answer.set[key] then
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

local function fault(job, why, mode)
   -- A job that could not be sized. One whose comment is all that it says follows the site's on_fault.
   faults = faults + 1
   local policy = shared.comment_only(job) and mode ~= "warn" and settings.on_fault or "as-written"
   log("not sized (" .. shared.clean(why) .. "), " .. policy .. "; fault " .. faults)
   if policy == "refuse" then return refuse("not sized (" .. shared.clean(why) .. "); submit it again later", mode) end
   if policy == "hold" then
      hold(job, job.priority == 0 and "1" or "0")
      print_to_user("not sized (" .. shared.clean(why) .. "); the job is held until it is sized")
   else
      print_to_user("not sized (" .. shared.clean(why) .. "); the job is submitted unchanged")
   end
   return slurm.SUCCESS
end

local function no_answer(job, why, mode, now)
   -- Only a timeout delays slurmctld. So only after a timeout are other jobs not sized either.
   if why == "timeout" then
      silent_until = now + settings.cooldown_s
      log("no requests for " .. settings.cooldown_s .. " s")
   end
   return fault(job, why, mode)
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

local function verified(job, answer, mode)
   -- A job that says that rightsizer sized it (run=) may have what its plan needs, and no more.
   if answer.verdict == "REFUSE" then return refuse(answer.say, mode, "denied") end
   if answer.verdict ~= "OK" then return refuse("the plan is not sized yet; submit the job again", mode) end
   local asked, needed = shared.gpus(job), shared.gpus(answer.set)
   if asked > needed then
      return refuse("the job asks for " .. asked .. " GPUs, its plan needs " .. needed, mode, "denied")
   end
   return slurm.SUCCESS
end

local function taken(job, answer, mode)
   local exceeded = shared.exceeds(answer.set, job)
   if exceeded then return fault(job, "the answer exceeds your " .. exceeded, mode) end
   if answer.verdict == "KEEP" then
      if mode == "enforce" and shared.wants_gpus(job) then return refuse(answer.say, mode, "denied") end
      if answer.code == "fault" then return fault(job, answer.say, mode) end
      print_to_user(answer.say)
   elseif mode == "warn" then
      print_to_user("not changed; would be: " .. answer.say)
   else
      apply(job, answer)
      print_to_user(answer.say)
   end
   return slurm.SUCCESS
end

local function decide(job, spec, uid, mode, now)
   if now < silent_until then return fault(job, "the daemon did not answer a moment ago", mode) end
   local claimed = shared.sized_before(spec)
   local text, why = send(question(job, spec, uid, claimed and "warn" or mode))
   if not text then return no_answer(job, why, mode, now) end
   local answer
   answer, why = shared.answer(text)
   if not answer then return no_answer(job, why, mode, now) end
   if claimed then return verified(job, answer, mode) end
   if answer.verdict == "REFUSE" then return refuse(answer.say, mode, answer.code) end
   return taken(job, answer, mode)
end

local function submit(job, part_list, uid)
   local now = os.time()
   configure(now)
   if not settings or not shared.active(settings) then return slurm.SUCCESS end
   local mode = shared.mode(settings, partitions_of(job, part_list))
   if mode == "off" then return slurm.SUCCESS end
   local enforced = mode == "enforce" and shared.wants_gpus(job)
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

local function modify(change, record, uid)
   -- In the mode enforce a user's update may lower a job, not get around its size.
   configure(os.time())
   if not settings or is_administrator(uid) then return slurm.SUCCESS end
   local partition = change.partition or record.partition
   if shared.mode(settings, partition) ~= "enforce" then return slurm.SUCCESS end
   local reason
   local held = shared.clean(record.comment):find("^%s*rightsizer:.* ticket=%x+")
   local grown = shared.grows(change, record)
   if shared.mode(settings, record.partition) ~= "enforce" then
      reason = "jobs cannot be moved into the partition " .. shared.clean(partition) .. "; submit it there"
   elseif grown then
      reason = "an update cannot add " .. grown .. " in this partition; submit the job again"
   elseif held and (change.comment or (shared.number(change.priority) or 0) > 0 or change.priority == 4294967295) then
      reason = "the job is held until it is sized"
   end
   return reason and refuse(reason, "enforce", "denied") or slurm.SUCCESS
end

function slurm_job_submit(job_desc, part_list, submit_uid)
   if not loaded then
      slurm.log_error("rightsizer: %s; jobs are submitted unchanged", tostring(shared))
      return slurm.SUCCESS
   end
   local done, code = pcall(submit, job_desc, part_list, submit_uid)
   if done then return code end
   slurm.log_error("rightsizer: %s; the job is submitted unchanged", tostring(code))
   return slurm.SUCCESS
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
   if not loaded then return slurm.SUCCESS end
   local done, code = pcall(modify, job_desc, job_rec, modify_uid)
   if done then return code end
   slurm.log_error("rightsizer: %s; the update is not checked", tostring(code))
   return slurm.SUCCESS
end

return slurm.SUCCESS
