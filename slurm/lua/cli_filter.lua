-- cli_filter.lua: sizes a job by its comment where no code may run in slurmctld. Runs in sbatch and salloc, as the
-- user, who can get round it. Asks the daemon of this machine (users = yes), and waits up to 5 s; on any fault of
-- ours the job goes on as it was written. See docs/slurm.md.

local here = (debug.getinfo(1, "S").source:match("^@(.*/)")) or "/etc/slurm/"
local loaded, shared = pcall(dofile, here .. "rightsizer.lua")
local has_socket, unix = pcall(require, "socket.unix")
local stream = has_socket and (type(unix) == "table" and unix.stream or unix) or nil
local PATIENCE_S = 5

local function tell(text)
   slurm.log_info("rightsizer: %s", text)
end

local function refuse(text)
   slurm.log_error("rightsizer: %s", text)
   return slurm.ERROR
end

local function configure()
   local file = io.open(here .. "rightsizer.conf", "r")
   if not file then return nil end
   local text = file:read(65536)
   file:close()
   return (shared.config(text))
end

local function ask(settings, request)
   if not stream then return nil, "luasocket is not installed" end
   local connection = stream()
   connection:settimeout(PATIENCE_S, "t")
   local done, why = connection:connect(settings.socket)
   if done then done, why = connection:send(request) end
   local text, partial
   if done then text, why, partial = connection:receive(shared.LONGEST_ANSWER + 1) end
   connection:close()
   return text or (why == "closed" and partial or nil), why
end

local function given(options, name)
   -- An option's value; nil where it is not set. Slurm writes what is not set in several ways.
   local value = options[name]
   if value == nil or value == "" or value == "unset" or value == "(null)" then return nil end
   return tostring(value)
end

local function asked_of(options)
   -- The options in the words of job_submit, so that one protocol and one set of checks do for both.
   local least, most = (given(options, "nodes") or ""):match("^(%d+)%-?(%d*)$")
   local gres = given(options, "gres")
   if not gres and given(options, "gpus-per-node") then gres = "gpu:" .. options["gpus-per-node"] end
   local gpus = given(options, "gpus")
   return {
      min_nodes = tonumber(least), max_nodes = tonumber(most or "") or tonumber(least),
      num_tasks = tonumber(given(options, "ntasks") or ""),
      ntasks_per_node = tonumber(given(options, "ntasks-per-node") or ""),
      cpus_per_task = tonumber(given(options, "cpus-per-task") or ""),
      time_limit = given(options, "time") and shared.minutes(options["time"]) or nil,
      partition = given(options, "partition"), account = given(options, "account"),
      gres = gres, tres_per_job = gpus and "gpu:" .. gpus or nil,
   }
end

local function question(asked, spec, mode)
   local fields = { { "comment", "rightsizer:" .. spec }, { "kind", "cli" }, { "mode", mode } }
   for key, value in pairs(asked) do fields[#fields + 1] = { key, value } end
   return shared.request(fields)
end

local function apply(options, set)
   options["nodes"] = set.min_nodes .. "-" .. set.max_nodes
   if given(options, "gpus-per-node") then   -- an option cannot be taken back, and both would add up
      options["gpus-per-node"] = set.gres:gsub("^gpu:", "")
   else
      options["gres"] = set.gres
   end
   options["partition"] = set.partition
   if set.time_limit then options["time"] = tostring(set.time_limit) end
   if set.num_tasks then options["ntasks"] = tostring(set.num_tasks) end
   if set.cpus_per_task then options["cpus-per-task"] = tostring(set.cpus_per_task) end
end

local function left_alone(options, offset)
   if options["type"] == "srun" then return "srun keeps what it was told; use sbatch or salloc to be sized" end
   if (tonumber(offset) or 0) > 0 then return "a heterogeneous job is left as written" end
   if given(options, "gpus-per-task") or given(options, "gpus-per-socket") or given(options, "gpus") then
      return "with --gpus, --gpus-per-task or --gpus-per-socket a job is left as written; use --gpus-per-node"
   end
   return nil
end

local function decide(options, spec, mode, settings)
   local asked = asked_of(options)
   local text, why = ask(settings, question(asked, spec, mode))
   local answer
   if text then answer, why = shared.answer(text) end
   if not answer or answer.verdict == "HOLD" then
      tell("no size (" .. shared.clean(why or "it takes too long") .. "); the job goes on as written")
      return slurm.SUCCESS
   end
   if answer.verdict == "REFUSE" then
      if mode ~= "warn" then return refuse(answer.say) end
      tell("would be refused: " .. answer.say)
      return slurm.SUCCESS
   end
   local beyond = shared.exceeds(answer.set, asked)
   if beyond then
      tell("no size (the answer exceeds your " .. beyond .. "); the job goes on as written")
   elseif answer.verdict == "OK" and mode ~= "warn" then
      apply(options, answer.set)
      tell(answer.say)
   else
      tell((answer.verdict == "OK" and "not changed; would be: " or "") .. answer.say)
   end
   return slurm.SUCCESS
end

local function submit(options, offset)
   local spec, wrong = shared.spec(given(options, "comment"))
   if not spec or shared.sized_before(spec) then return slurm.SUCCESS end
   local settings = configure()
   local mode = settings and shared.mode(settings, given(options, "partition"))
   if not settings or mode == "off" then return slurm.SUCCESS end
   if wrong and mode ~= "warn" then return refuse(wrong) end
   local reason = wrong or left_alone(options, offset)
   if reason then
      tell(reason)
      return slurm.SUCCESS
   end
   return decide(options, spec, mode, settings)
end

function slurm_cli_pre_submit(options, pack_offset)
   if not loaded then return slurm.SUCCESS end
   local done, code = pcall(submit, options, pack_offset)
   if done then return code end
   slurm.log_info("rightsizer: %s; the job goes on as written", tostring(code))
   return slurm.SUCCESS
end

function slurm_cli_setup_defaults(options, early_pass)
   return slurm.SUCCESS
end

function slurm_cli_post_submit(offset, job_id, step_id)
   return slurm.SUCCESS
end

return slurm.SUCCESS
