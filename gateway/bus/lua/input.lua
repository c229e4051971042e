-- Queues an input. ARGV: run_id, queue entry, run_queued payload, bound of waiting ones, candidate owner's node name,
-- candidate owner's incarnation ('' where this node knows of none), '1' where any node may own the session (storage
-- "shared"), how long an input waits for its home in ms, idempotency key, fingerprint.
-- Sets the owner where there is none: the candidate at first, later whoever may (bridge 9, "Storage"). Where nobody may,
-- the input waits, and a due instant ends the wait. Returns {run_id, owner's incarnation, its node's name, epoch}.
if not open_session() then return redis.error_reply('TR not_found') end
local stored, conflict = replay(ARGV[9], ARGV[10])
if conflict then return conflict end
local run_id = stored or ARGV[1]
if not stored then
  if redis.call('LLEN', base .. ':runs') >= tonumber(ARGV[4]) then return redis.error_reply('TR queue_full') end
  -- First a write that needs memory: a full server then refuses the whole script.
  redis.call('RPUSH', base .. ':runs', ARGV[2])
  keep(base .. ':runs')
  redis.call('SADD', partition .. 'work', sid())
  append(ARGV[3])
  remember(ARGV[9], ARGV[10], ARGV[1], C.idempotency_ttl)
end
local fields = {}
local name = redis.call('HGET', base, 'owner_name') or ''
if not owned() and ARGV[6] ~= '' and (name == '' or name == ARGV[5] or ARGV[7] == '1') then
  name = ARGV[5]
  fields = { give_to(name, ARGV[6]) }
end
if not owned() then
  redis.call('ZADD', due_key, 'NX', int(now + tonumber(ARGV[8])), home_member())
end
commit(unpack(fields))
tell_owner('I')
return { run_id, session.owner or '', name, session.epoch }
