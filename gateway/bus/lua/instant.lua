-- The instant of this run on the bus clock, `now`, in ms. Rendered in front of every script.
--
-- The last ARGV is what the node that runs it says of the time: its own estimate of the bus clock, and behind it the
-- shift of this server's clock where there is one ('' = it does not know: then TIME is taken as it is). TIME less the
-- shift decides, so all scripts go by one clock. Where the two are further apart than C.step, this server's clock has
-- been set a moment ago and the nodes have not agreed on the shift yet, or the command was long under way; in both cases
-- the estimate is right, as of when it was made.

local told, shift = table.remove(ARGV), 0
local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000)
if told ~= '' then
  local space = string.find(told, ' ', 1, true)
  if space then
    told, shift = string.sub(told, 1, space - 1), tonumber(string.sub(told, space + 1))
    now = now - shift
  end
  told = tonumber(told)
  if math.abs(now - told) > C.step then now = told end
end

local function int(n)
  return string.format('%.0f', n)
end
