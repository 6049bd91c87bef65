-- job_submit.lua: sizes a job by its comment, "rightsizer: model=... tokens=... deadline=...".
-- Runs in slurmctld, under its locks: one question over a unix socket, 0.3 s at most, and after a failure none
-- for 30 s. On any fault of ours the job goes on as it was written. See docs/slurm.md.

local here = (debug.getinfo(1, "S").source:match("^@(.*/)")) or "/etc/slurm/"
local loaded, shared = pcall(dofile, here .. "rightsizer.lua")
local has_socket, unix = pcall(require, "socket.unix")
local stream = has_socket and (type(unix) == "table" and unix.stream or unix) or nil

local settings           -- of rightsizer.conf; nil until it could be read
local read_at = 0        -- when it was read; a change is seen a second later
local silent_until = 0   -- no question before this moment; kept until slurmctld reloads this file

local function tell(text)
   slurm.log_user("rightsizer: %s", text)
end

local function note(text)
   slurm.log_info("rightsizer: %s", text)
end

local function configure(now)
   if settings and now == read_at then return end
   local file = io.open(here .. "rightsizer.conf", "r")
   settings, read_at = nil, now
   if not file then return end
   local text = file:read(65536)
   file:close()
   local complaints
   settings, complaints = shared.config(text)
   for _, complaint in ipairs(complaints) do note("rightsizer.conf: " .. complaint) end
end

local function ask(request)
   if not stream then return nil, "luasocket is not installed" end
   local connection = stream()
   connection:settimeout(settings.timeout_s, "t")
   local done, why = connection:connect(settings.socket)
   if done then done, why = connection:send(request) end
   local text, partial
   if done then text, why, partial = connection:receive(shared.LONGEST_ANSWER + 1) end
   connection:close()
   -- fewer bytes than were asked for, and then the end, is the usual case
   return text or (why == "closed" and partial or nil), why
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
   return shared.request({
      { "comment", "rightsizer:" .. spec }, { "kind", kind_of(job) }, { "mode", mode },
      { "uid", uid }, { "user", job.user_name }, { "account", job.account or job.default_account },
      { "qos", job.qos or job.default_qos }, { "partition", job.partition }, { "reservation", job.reservation },
      { "min_nodes", job.min_nodes }, { "max_nodes", job.max_nodes }, { "num_tasks", job.num_tasks },
      { "ntasks_per_node", job.ntasks_per_node }, { "cpus_per_task", job.cpus_per_task },
      { "time_limit", job.time_limit }, { "gres", job.gres }, { "tres_per_job", job.tres_per_job },
      { "array", job.array_inx }, { "priority", job.priority },
   })
end

local function apply(job, answer)
   for key, value in pairs(answer.set) do job[key] = value end
   if job.environment ~= nil then
      for name, value in pairs(answer.env) do job.environment[name] = value end
   end
   for _, key in ipairs({ "min_nodes", "max_nodes", "time_limit" }) do
      if answer.set[key] and job[key] ~= answer.set[key] then
         slurm.log_error("rightsizer: this Slurm did not take %s", key)
      end
   end
end

local function open(why, now)
   silent_until = now + settings.cooldown_s
   note("no size (" .. shared.clean(why) .. "); jobs go on as written for " .. settings.cooldown_s .. " s")
   tell("no size (" .. shared.clean(why) .. "); the job goes on as written")
   return slurm.SUCCESS
end

local function refuse(text, mode)
   if mode == "warn" then
      tell("would be refused: " .. text)
      return slurm.SUCCESS
   end
   tell(text)
   return slurm.ERROR
end

local function left_alone(job, spec)
   -- Why a job with our comment is not ours to change, or nil.
   if shared.number(job.het_job_offset) then return "a heterogeneous job is left as written" end
   if kind_of(job) == "srun" then return "srun keeps what it was told; use sbatch or salloc to be sized" end
   if (shared.clean(job.tres_per_task) .. shared.clean(job.tres_per_socket)):find("gpu", 1, true) then
      return "with --gpus-per-task or --gpus-per-socket a job is left as written; use --gpus-per-node"
   end
   return nil
end

local function decide(job, spec, uid, mode, now)
   if now < silent_until then
      tell("no size (no answer a moment ago); the job goes on as written")
      return slurm.SUCCESS
   end
   local text, why = ask(question(job, spec, uid, mode))
   if not text then return open(why, now) end
   local answer
   answer, why = shared.answer(text)
   if not answer then return open(why, now) end
   if answer.verdict == "REFUSE" then return refuse(answer.say, mode) end
   local beyond = shared.exceeds(answer.set, job)
   if beyond then return open("the answer exceeds your " .. beyond, now) end
   if answer.verdict == "KEEP" then
      tell(answer.say)
   elseif mode == "warn" then
      tell("not changed; would be: " .. answer.say)
   else
      apply(job, answer)
      tell(answer.say)
   end
   return slurm.SUCCESS
end

local function submit(job, part_list, uid)
   local now = os.time()
   configure(now)
   if not settings or not shared.may_ask(settings) then return slurm.SUCCESS end
   local mode = shared.mode(settings, partitions_of(job, part_list))
   if mode == "off" then return slurm.SUCCESS end
   local spec, wrong = shared.spec(job.comment)
   if not spec then
      if mode == "enforce" and shared.wants_gpus(job) then
         tell("this partition wants to know what a GPU job trains: --comment=\"rightsizer: model=... tokens=...\"")
         return slurm.ERROR
      end
      return slurm.SUCCESS
   end
   if shared.sized_before(spec) then return slurm.SUCCESS end
   if wrong then return refuse(wrong, mode) end
   local reason = left_alone(job, spec)
   if reason then
      tell(reason)
      return slurm.SUCCESS
   end
   return decide(job, spec, uid, mode, now)
end

function slurm_job_submit(job_desc, part_list, submit_uid)
   if not loaded then
      slurm.log_error("rightsizer: %s; jobs go on as written", tostring(shared))
      return slurm.SUCCESS
   end
   local done, code = pcall(submit, job_desc, part_list, submit_uid)
   if done then return code end
   slurm.log_error("rightsizer: %s; the job goes on as written", tostring(code))
   return slurm.SUCCESS
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
   return slurm.SUCCESS
end

return slurm.SUCCESS
