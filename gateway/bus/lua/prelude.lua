-- What every script of a session shares. Rendered in front of each script by scripts.py, behind the constants
-- (C: bounds in ms and counts; step(): the transition table; failure_text(): what the model is told of a failed call).
-- A function that a script does not reach is left out of it, so functions begin and end at the line's begin.
--
-- KEYS[1] the session's base key  <prefix>:{pNN}:s:<session id>   (a hash; every other key of it begins with it)
-- KEYS[2] its partition's due set <prefix>:{pNN}:due               (scored by the bus clock's milliseconds)
--
-- All of a session's keys share the slot of its partition's tag, so keys are derived here and not declared each.
-- A script reads the clock once (instant.lua, rendered in front): what it stamps and what it checks is one instant.

local base, due_key = KEYS[1], KEYS[2]
local partition = string.sub(due_key, 1, -4)
local session = {}
local pushed = {}

local function sid()
  return string.sub(base, -36)
end

-- An instant as RFC 3339 in UTC with milliseconds (days to civil date, proleptic Gregorian calendar).
local function rfc3339(ms)
  local days = math.floor(ms / 86400000)
  local rest = ms - days * 86400000
  local z = days + 719468
  local era = math.floor(z / 146097)
  local doe = z - era * 146097
  local yoe = math.floor((doe - math.floor(doe / 1460) + math.floor(doe / 36524) - math.floor(doe / 146096)) / 365)
  local doy = doe - (365 * yoe + math.floor(yoe / 4) - math.floor(yoe / 100))
  local mp = math.floor((5 * doy + 2) / 153)
  local day = doy - math.floor((153 * mp + 2) / 5) + 1
  local month = mp < 10 and mp + 3 or mp - 9
  local year = yoe + era * 400 + (month <= 2 and 1 or 0)
  local s = math.floor(rest / 1000)
  return string.format('%04d-%02d-%02dT%02d:%02d:%02d.%03dZ', year, month, day, math.floor(s / 3600),
    math.floor(s / 60) % 60, s % 60, rest % 1000)
end

-- Loads what every transition needs; false when there is no such session.
local function open_session()
  local v = redis.call('HMGET', base, 'seq', 'epoch', 'owner', 'touched', 'op', 'listed')
  if not v[1] then return false end
  session = { seq = tonumber(v[1]), epoch = v[2] or '0', owner = v[3], touched = tonumber(v[4] or 0),
    op = tonumber(v[5] or 0), listed = tonumber(v[6] or 0) }
  pushed = {}
  return true
end

-- An owner's writes are fenced by its epoch and numbered without a gap: one whose answer was lost is sent again under
-- its number, and is then 'repeated' and not applied twice; one that comes before its predecessor is refused. Returns
-- nil when it is to be applied; every path behind that must commit.
local function fence(epoch, op)
  if session.epoch ~= epoch then return redis.error_reply('TR fenced') end
  if tonumber(op) <= session.op then return 'repeated' end
  if tonumber(op) > session.op + 1 then return redis.error_reply('TR gap ' .. int(session.op)) end
  session.op = tonumber(op)
  return nil
end

local function owned()
  return session.owner and session.owner ~= ''
end

-- In the due set: the instant at which a session gives up waiting for the node that is its home.
local function home_member()
  return 'h' .. sid() .. ':'
end

-- Another owner ('' = nobody for now): everything that the one before still wants to write is void.
local function give_to(name, incarnation)
  session.owner, session.epoch, session.op = incarnation, int(tonumber(session.epoch) + 1), 0
  if incarnation ~= '' then redis.call('ZREM', due_key, home_member()) end
  return 'owner', incarnation, 'owner_name', name, 'epoch', session.epoch
end

local function keep(key)
  redis.call('PEXPIRE', key, C.session_ttl)
end

-- Appends one event (an encoded object without seq) and keeps it for the push; `live`, where it is given, is what
-- readers get now in its stead. Returns the event as it stands in the log.
local function append(payload, live)
  session.seq = session.seq + 1
  local head = '{"seq":' .. int(session.seq) .. ','
  local event = head .. string.sub(payload, 2)
  if session.seq % C.trim_every == 0 then
    redis.call('XADD', base .. ':log', 'MAXLEN', '~', C.log_events, int(session.seq) .. '-0', 'e', event)
  else
    redis.call('XADD', base .. ':log', int(session.seq) .. '-0', 'e', event)
  end
  pushed[#pushed + 1] = live and (head .. string.sub(live, 2)) or event
  return event
end

-- A failover has lost events: the log goes on above every number that a reader may have been given, and says so. What
-- it says stands in the session too (field `reset`), so that one loss is said once.
local function reset_log(above)
  session.seq = math.max(session.seq, above) + C.lost_events
  append('{"type":"custom","kind":"log_reset","payload":{}}')
  redis.call('HSET', base, 'reset', int(session.seq))
end

-- Ends a transition: the number, further fields of the session, the lifetimes once in a while, and the push.
local function commit(...)
  if now - session.touched > C.touch_every then
    for _, suffix in ipairs({ '', ':log', ':clients', ':names', ':keys', ':open', ':runs', ':tokens', ':calls', ':approvals' }) do
      keep(base .. suffix)
    end
    for _, client_id in ipairs(redis.call('ZRANGE', base .. ':clients', 0, -1)) do
      keep(base .. ':c:' .. client_id)
    end
    redis.call('HSET', base, 'touched', int(now))
  end
  redis.call('HSET', base, 'seq', int(session.seq), 'op', int(session.op), ...)
  if #pushed > 0 then
    redis.call(C.publish, base, 'E' .. table.concat(pushed, '\n'))
    pushed = {}
  end
end

-- A message to the owner's inbox: only a hurry-up, whatever it says stands in the session's keys too.
local function tell_owner(kind, ...)
  if owned() then
    redis.call(C.publish, partition .. 'in:' .. session.owner, kind .. sid() .. table.concat({ '', ... }, ' '))
  end
end

-- Idempotency: the stored answer of a key, or nil, or an error when the key was used for another request.
-- `key` is '' where the request has none. The key's own lifetime is given when it is stored.
local function replay(key, fingerprint)
  if key == '' then return nil, nil end
  local v = redis.call('HMGET', base .. ':idem:' .. key, 'f', 'a')
  if not v[1] then return nil, nil end
  if v[1] ~= fingerprint then return nil, redis.error_reply('TR idempotency_conflict') end
  return v[2], nil
end

-- The index of a session's keys of requests is there for its end alone; it forgets what Redis has forgotten.
local function remember(key, fingerprint, answer, ttl)
  if key == '' then return end
  redis.call('HSET', base .. ':idem:' .. key, 'f', fingerprint, 'a', answer)
  redis.call('PEXPIRE', base .. ':idem:' .. key, ttl)
  redis.call('ZREMRANGEBYSCORE', base .. ':idems', '-inf', int(now))
  redis.call('ZADD', base .. ':idems', int(now + tonumber(ttl)), key)
  redis.call('PEXPIRE', base .. ':idems', math.max(tonumber(ttl), redis.call('PTTL', base .. ':idems')))
end
