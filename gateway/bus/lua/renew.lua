-- A node's lease. KEYS[1] leases (a sorted set), KEYS[2] what each node says of itself (a hash). ARGV: incarnation,
-- lease in ms ('0' = give it up), what this node says (JSON). Returns {now, instant at which the next lease ends if nobody
-- renews it, number of those that live, incarnation, info, … of them, then the incarnations whose lease has ended}. A lease
-- that ended a minute ago is forgotten, so both keys stay as small as the deployment.
local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000)
local function int(n) return string.format('%.0f', n) end
if ARGV[2] == '0' then
  redis.call('ZADD', KEYS[1], int(now), ARGV[1]) -- it ends now: what it leaves behind is looked after at once
else
  redis.call('ZADD', KEYS[1], int(now + tonumber(ARGV[2])), ARGV[1])
  redis.call('HSET', KEYS[2], ARGV[1], ARGV[3])
end
for _, dead in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', int(now - 60000))) do
  redis.call('ZREM', KEYS[1], dead)
  redis.call('HDEL', KEYS[2], dead)
end
redis.call('PEXPIRE', KEYS[1], 3600000)
redis.call('PEXPIRE', KEYS[2], 3600000)
local living = redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. int(now), '+inf', 'WITHSCORES')
local answer = { int(now), living[2] or int(now), #living / 2 }
for i = 1, #living, 2 do
  answer[#answer + 1] = living[i]
  answer[#answer + 1] = redis.call('HGET', KEYS[2], living[i])
end
for _, incarnation in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', int(now))) do
  answer[#answer + 1] = incarnation
end
return answer
