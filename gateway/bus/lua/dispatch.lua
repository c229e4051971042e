-- The owner dispatches a call. ARGV: epoch, call_id, client_id, registration's revision as the owner knows it, budget
-- in ms, tool, model name, run_id, idempotent (1|0), arguments for the log, arguments for the client ('' = the same),
-- delivery marks, then payloads that are logged before (closed messages, the tool_call block, tool_call).
-- Returns {'dispatched', due ms, deadline ms, now}, {'gone'} or {'stale'} (the list has changed: read it again).
if not open_session() then return redis.error_reply('TR not_found') end
if session.epoch ~= ARGV[1] then return redis.error_reply('TR fenced') end
local client = redis.call('HMGET', client_key(ARGV[3]), 'revision', 'expires')
if not client[1] or (client[2] and tonumber(client[2]) <= now) then return { 'gone' } end
if client[1] ~= ARGV[4] then return { 'stale' } end
if redis.call('EXISTS', call_key(ARGV[2])) == 1 then return redis.error_reply('TR conflict') end
for id, mark in string.gmatch(ARGV[12], '(%S+) (%S+)') do
  if redis.call('EXISTS', call_key(id)) == 1 then redis.call('HSET', call_key(id), 'delivery', mark) end
end
for i = 13, #ARGV do append(ARGV[i]) end
local call = { id = ARGV[2], client = ARGV[3], attempt = 1, deadline = now + tonumber(ARGV[5]) }
local due = wait_until(call, now + C.ack)
local live = ARGV[11] ~= '' and ARGV[11] or ARGV[10]
redis.call('HSET', call_key(call.id), 'state', 'dispatched', 'client', call.client, 'tool', ARGV[6], 'model', ARGV[7],
  'run', ARGV[8], 'attempt', '1', 'due', due, 'deadline', int(call.deadline), 'dispatched', int(now), 'idempotent',
  ARGV[9], 'args', live)
if ARGV[11] ~= '' then redis.call('HSET', call_key(call.id), 'log_args', ARGV[10]) end
redis.call('PEXPIRE', call_key(call.id), C.settled_ttl)
redis.call('HSET', base .. ':open', call.id, call.client)
keep(base .. ':open')
redis.call('ZADD', base .. ':calls', int(now), call.id)
redis.call('ZREMRANGEBYSCORE', base .. ':calls', '-inf', int(now - C.settled_ttl))
keep(base .. ':calls')
local hidden = ARGV[11] ~= ''
append(dispatched(call, ARGV[6], ARGV[10], hidden), hidden and dispatched(call, ARGV[6], live) or nil)
redis.call('HSET', call_key(call.id), 'seq', int(session.seq))
commit()
return { 'dispatched', due, int(call.deadline), int(now) }
