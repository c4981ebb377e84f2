-- How Argo CD sees a TrainingJob: it makes progress until it has ended, as a Job does.
local ends = { Succeeded = "Healthy", Failed = "Degraded", Suspended = "Suspended" }
local health = { status = "Progressing", message = "Waiting for the operator." }
local status = obj.status

if status == nil then
  return health
end
if status.message ~= nil and status.message ~= "" then
  health.message = status.message
end

local known = ends[status.phase]
if known == "Healthy" or known == "Degraded" then
  health.status = known
  return health
end
-- What follows speaks of a spec that may have been changed since.
if status.observedGeneration ~= nil and status.observedGeneration ~= obj.metadata.generation then
  return health
end
for _, condition in ipairs(status.conditions or {}) do
  if condition.type == "InvalidSpec" and condition.status == "True" then
    health.status = "Degraded"
    health.message = condition.message
    return health
  end
end
health.status = known or "Progressing"
return health
