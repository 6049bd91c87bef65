-- cli_filter.lua: sizes a job by its comment, for sites that run no code in slurmctld. It runs in sbatch and salloc as
-- the user, who can bypass it. It sends one request to the daemon of this machine (users = yes) and waits up to 5 s.
-- On every error the job is submitted unchanged, or refused in the mode enforce. See docs/slurm.md.

local folder = (debug.getinfo(1, "S").source:match("^@(.*/)")) or "/etc/slurm/"
local loaded, shared = pcall(dofile, folder .. "rightsizer.lua")
local has_socket, unix = pcall(require, "socket.unix")
local stream = has_socket and (type(unix) == "table" and unix.stream or unix) or nil
local TIMEOUT_S = 5

local quiet   -- --quiet of this submit: Slurm hides the line in sbatch only, not in salloc and srun

local function print_to_user(text)
   if quiet then return end
   slurm.log_info("rightsizer: %s", text)
end

local function refuse(text)
   slurm.log_error("rightsizer: %s", text)
   return slurm.ERROR
end

local function configure()
   local file = io.open(folder .. "rightsizer.conf", "r")
   if not file then return nil end
   local text = file:read(65536)
   file:close()
   return (shared.config(text))
end

local function send(settings, request)
   if not stream then return nil, "luasocket is not installed" end
   return shared.exchange(stream(), settings.socket, TIMEOUT_S, request)
end

local function stated(options)
   -- The names of the options that the user wrote: options[] also has Slurm's defaults (nodes 1, ntasks 1).
   local names = {}
   local text = slurm.json_cli_options(options):gsub("\\.", "")
   for name, after in text:gmatch('"([^"]*)"(.?)') do
      if after == ":" then names[name] = true end
   end
   return names
end

local wrote   -- what stated() found in this submit

local function given(options, name)
   -- The value of an option that the user wrote; nil if they did not.
   local value = wrote[name] and options[name]
   if not value or value == "" or value == "unset" or value == "(null)" then return nil end
   return tostring(value)
end

local function megabytes(text)
   -- MB of sbatch's --mem: 512, 3G, 1T.
   local number, unit = tostring(text or ""):upper():match("^(%d+)([KMGT]?)B?$")
   local factor = { K = 1 / 1024, [""] = 1, M = 1, G = 1024, T = 1048576 }
   return number and math.ceil(number * factor[unit])
end

local function request_of(options)
   -- The options under the names of job_submit, so that both plugins share the protocol and the checks.
   local least, most = (given(options, "nodes") or ""):match("^(%d+)%-?(%d*)$")
   local gres = given(options, "gres")
   local node_gpus = given(options, "gpus-per-node")
   if node_gpus then gres = (gres and gres .. "," or "") .. "gpu:" .. node_gpus end
   return {
      min_nodes = tonumber(least), max_nodes = tonumber(most or "") or tonumber(least),
      num_tasks = tonumber(given(options, "ntasks") or ""),
      ntasks_per_node = tonumber(given(options, "ntasks-per-node") or ""),
      cpus_per_task = tonumber(given(options, "cpus-per-task") or ""),
      time_limit = given(options, "time") and shared.minutes(options["time"]) or nil,
      time_min = given(options, "time-min") and shared.minutes(options["time-min"]) or nil,
      partition = given(options, "partition"), account = given(options, "account"), qos = given(options, "qos"),
      gres = gres, exclusive = given(options, "exclusive") == "exclusive" and 0 or nil,
      req_nodes = given(options, "nodelist"), exc_nodes = given(options, "exclude"),
      features = given(options, "constraint"), reservation = given(options, "reservation"),
      deadline = given(options, "deadline"), node_mb = megabytes(given(options, "mem")),
      core_mb = megabytes(given(options, "mem-per-cpu")), node_cpus = tonumber(given(options, "mincpus") or ""),
      gpu_memory = given(options, "mem-per-gpu") and "gpu:" .. (megabytes(options["mem-per-gpu"]) or 0),
   }
end

local function request_text(requested, spec, mode)
   local fields = { { "comment", "rightsizer:" .. spec }, { "kind", "cli" }, { "mode", mode } }
   for key, value in pairs(requested) do fields[#fields + 1] = { key, value } end
   return shared.request(fields)
end

local function apply(options, set)
   options["nodes"] = set.min_nodes .. "-" .. set.max_nodes
   if given(options, "gpus-per-node") then   -- an option cannot be unset, and the two would add up
      options["gpus-per-node"] = set.gres:gsub("^gpu:", "")
   else
      options["gres"] = shared.beside(set.gres, given(options, "gres"))
   end
   options["partition"] = set.partition
   if set.time_limit then options["time"] = tostring(set.time_limit) end
   if set.num_tasks then options["ntasks"] = tostring(set.num_tasks) end
   if set.cpus_per_task then options["cpus-per-task"] = tostring(set.cpus_per_task) end
end

local function unsupported(options, offset)
   if options["type"] == "srun" then return "srun jobs are not sized; use sbatch or salloc" end
   if (tonumber(offset) or 0) > 0 then return "heterogeneous jobs are not sized" end
   for _, name in ipairs({ "gpus", "gpus-per-task", "gpus-per-socket", "cpus-per-gpu", "ntasks-per-gpu" }) do
      if wrote[name] then return "jobs with --" .. name .. " are not sized; use --gpus-per-node" end
   end
   return nil
end

local function unsized(why, mode)
   if mode == "enforce" then return refuse("not sized (" .. why .. "); submit it again later") end
   print_to_user("not sized (" .. why .. "); the job is submitted unchanged")
   return slurm.SUCCESS
end

local function decide(options, spec, mode, settings)
   local requested = request_of(options)
   local text, why = send(settings, request_text(requested, spec, mode))
   local response
   if text then response, why = shared.response(text) end
   if not response or response.verdict == "HOLD" then
      return unsized(shared.clean(why or "sizing takes too long"), mode)
   end
   if response.verdict == "REFUSE" then
      if mode ~= "warn" then return refuse(response.say) end
      print_to_user("would be refused: " .. response.say)
      return slurm.SUCCESS
   end
   local exceeded = shared.exceeds(response.set, requested)
   if exceeded then return unsized("the answer exceeds your " .. exceeded, mode) end
   if response.code == "fault" then return unsized(response.say, mode) end
   if response.verdict == "OK" and mode ~= "warn" then
      apply(options, response.set)
      print_to_user(response.say)
   else
      print_to_user((response.verdict == "OK" and "not changed; would be: " or "") .. response.say)
   end
   return slurm.SUCCESS
end

local function submit(options, offset)
   if options["type"] == "srun" and os.getenv("SLURM_JOB_ID") then return slurm.SUCCESS end   -- a step of a job
   wrote = stated(options)
   quiet = (tonumber(options["quiet"]) or 0) > 0
   local spec, wrong = shared.spec(given(options, "comment"))
   if not spec or shared.sized_before(spec) then return slurm.SUCCESS end
   local settings = configure()
   local mode = settings and shared.mode(settings, given(options, "partition"))
   if not settings or mode == "off" then return slurm.SUCCESS end
   if wrong and mode ~= "warn" then return refuse(wrong) end
   local reason = wrong or unsupported(options, offset)
   if reason then
      print_to_user(reason)
      return slurm.SUCCESS
   end
   return decide(options, spec, mode, settings)
end

function slurm_cli_pre_submit(options, pack_offset)
   if not loaded then return slurm.SUCCESS end
   local done, code = pcall(submit, options, pack_offset)
   if done then return code end
   slurm.log_info("rightsizer: %s; the job is submitted unchanged", tostring(code))
   return slurm.SUCCESS
end

function slurm_cli_setup_defaults(options, early_pass)
   return slurm.SUCCESS
end

function slurm_cli_post_submit(offset, job_id, step_id)
   return slurm.SUCCESS
end

return slurm.SUCCESS
