-- A client joins. ARGV: client_id, wanted name, ttl in seconds (0 = never), client_registered payload without its
-- closing brace, stored record's tools, lifetime (JSON), app key ('' = none), resume key's hash ('' = none), holder's
-- incarnation and socket ('' = held by nobody: it must ping), idempotency key, fingerprint, bounds: live clients, names.
-- Returns the answer's JSON {id, name, expires_at}.
if not open_session() then return redis.error_reply('TR not_found') end
local stored, conflict = replay(ARGV[10], ARGV[11])
if conflict then return conflict end
if stored then return stored end
local taken = ARGV[7] ~= '' and redis.call('HGET', base .. ':keys', ARGV[7]) or false
if redis.call('ZCARD', base .. ':clients') - (taken and 1 or 0) >= tonumber(ARGV[12]) then
  return redis.error_reply('TR too_many_clients')
end
if redis.call('HLEN', base .. ':names') >= tonumber(ARGV[13]) then return redis.error_reply('TR too_many_names') end
local ttl, expires = tonumber(ARGV[3]), nil
if ttl > 0 and ARGV[9] == '' then expires = now + ttl * 1000 end
local order = redis.call('HINCRBY', base, 'order', 1)
local name, kept = nil, {}
if taken then
  name, kept = retire(taken, 'departed', true)
else
  name = free_name(ARGV[2])
  redis.call('HSET', base .. ':names', name, ARGV[1])
  keep(base .. ':names')
end
redis.call('HSET', client_key(ARGV[1]), 'name', name, 'order', order, 'tools', ARGV[5], 'revision', '1', 'ttl', ARGV[3],
  'lifetime', ARGV[6], 'key', ARGV[7], 'resume', ARGV[8], 'holder', '')
if ARGV[9] ~= '' then
  hold(ARGV[1], ARGV[9])
elseif expires then
  redis.call('HSET', client_key(ARGV[1]), 'expires', int(expires))
  redis.call('ZADD', due_key, int(expires), client_due(ARGV[1]))
end
keep(client_key(ARGV[1]))
redis.call('ZADD', base .. ':clients', order, ARGV[1])
keep(base .. ':clients')
if ARGV[7] ~= '' then
  redis.call('HSET', base .. ':keys', ARGV[7], ARGV[1])
  keep(base .. ':keys')
end
append(ARGV[4] .. ',"name":"' .. name .. '"}')
retake_calls(kept, ARGV[1])
local answer = '{"id":"' .. ARGV[1] .. '","name":"' .. name .. '","expires_at":' .. expires_json(expires) .. '}'
remember(ARGV[10], ARGV[11], answer, C.idempotency_ttl)
commit()
tell_owner('C')
return answer
