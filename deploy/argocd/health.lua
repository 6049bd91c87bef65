-- The health of a TrainingPlan for Argo CD: resource.customizations.health.rightsizer.dev_TrainingPlan
-- in the ConfigMap argocd-cm. Healthy: it trains, or is complete. Degraded: somebody must act.
local status = obj.status or {}
local conditions = {}
for _, condition in ipairs(status.conditions or {}) do
  conditions[condition.type] = condition
end

local function holds(kind)
  return conditions[kind] ~= nil and conditions[kind].status == "True"
end

local health, why = "Progressing", conditions.Ready
if why == nil or status.observedGeneration ~= obj.metadata.generation then
  return {status = health, message = "the operator has not answered this spec yet"}
end
if holds("Stalled") then
  health, why = "Degraded", conditions.Stalled
elseif why.reason == "Suspended" then
  health = "Suspended"
elseif holds("Reconciling") then
  why = conditions.Reconciling
elseif why.status == "True" then
  health = "Healthy"
end
return {status = health, message = why.reason .. ": " .. (why.message or "")}
