-- Registrations: names, the record's end. Rendered behind calls.lua.

local function client_key(client_id)
  return base .. ':c:' .. client_id
end

local function client_due(client_id)
  return 'r' .. sid() .. ':' .. client_id
end

-- A holder is `<incarnation>:<socket>`; what an incarnation holds in a partition is listed, so that its end is noticed.
local function held_set(holder)
  return partition .. 'held:' .. string.match(holder, '^[^:]*')
end

local function hold(client_id, holder)
  redis.call('HSET', client_key(client_id), 'holder', holder)
  redis.call('HDEL', client_key(client_id), 'expires')
  redis.call('ZREM', due_key, client_due(client_id))
  redis.call('SADD', held_set(holder), sid() .. ':' .. client_id)
  keep(held_set(holder))
end

-- The lifetime begins to count, if `holder` (a whole one, or an incarnation) still holds it. Returns whether it did.
local function release(client_id, holder)
  local v = redis.call('HMGET', client_key(client_id), 'holder', 'ttl')
  if not v[1] or v[1] == '' or (v[1] ~= holder and string.match(v[1], '^[^:]*') ~= holder) then return false end
  redis.call('SREM', held_set(v[1]), sid() .. ':' .. client_id)
  redis.call('HSET', client_key(client_id), 'holder', '')
  if tonumber(v[2]) > 0 then
    local expires = int(now + tonumber(v[2]) * 1000)
    redis.call('HSET', client_key(client_id), 'expires', expires)
    redis.call('ZADD', due_key, expires, client_due(client_id))
  end
  return true
end

-- A registration ends. `reason` departed frees its name, timed_out keeps it spent (HTTP protocol, "Registrations");
-- `replaced`: another takes the place over by key, and with it the name. Returns the name and the calls to retake.
local function retire(client_id, reason, replaced)
  local v = redis.call('HMGET', client_key(client_id), 'name', 'key', 'holder')
  local kept = leave_calls(client_id, replaced)
  redis.call('DEL', client_key(client_id))
  if v[3] and v[3] ~= '' then redis.call('SREM', held_set(v[3]), sid() .. ':' .. client_id) end
  redis.call('ZREM', base .. ':clients', client_id)
  redis.call('ZREM', due_key, client_due(client_id))
  if v[2] and v[2] ~= '' and redis.call('HGET', base .. ':keys', v[2]) == client_id then
    redis.call('HDEL', base .. ':keys', v[2])
  end
  if reason == 'departed' and not replaced then redis.call('HDEL', base .. ':names', v[1]) end
  if replaced and v[3] and v[3] ~= '' then redis.call(C.publish, base, 'Xtaken ' .. v[3] .. ' ' .. client_id) end
  append('{"type":"client_left","client_id":"' .. client_id .. '","reason":"' .. reason .. '"}')
  return v[1], kept
end

-- The name that a registration gets: the wanted one, or the first free counter behind it; the base is cut so that the
-- whole stays within 32 characters. Where the search begins is remembered per base, so it does not grow with use.
local function free_name(wanted)
  local names = base .. ':names'
  if redis.call('HEXISTS', names, wanted) == 0 then return wanted end
  local n = tonumber(redis.call('HGET', names, '#' .. wanted) or 2)
  while true do
    local suffix = '-' .. int(n)
    local name = string.sub(wanted, 1, 32 - #suffix) .. suffix
    n = n + 1
    if redis.call('HEXISTS', names, name) == 0 then
      redis.call('HSET', names, '#' .. wanted, int(n))
      return name
    end
  end
end

-- The lapse instant of a registration as the answer says it: JSON null where it has none.
local function expires_json(expires)
  if expires then return '"' .. rfc3339(expires) .. '"' end
  return 'null'
end
