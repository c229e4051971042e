-- Queues an input. ARGV: run_id, queue entry, run_queued payload, bound of waiting ones, candidate owner's node name,
-- candidate owner's incarnation ('' where this node knows of none), idempotency key, fingerprint.
-- Sets the owner where there is none. Returns {run_id, owner's incarnation, owner's node name, epoch}.
if not open_session() then return redis.error_reply('TR not_found') end
local stored, conflict = replay(ARGV[7], ARGV[8])
if conflict then return conflict end
local fields = {}
local name = redis.call('HGET', base, 'owner_name')
if not session.owner and ARGV[6] ~= '' then
  name = ARGV[5]
  fields = { give_to(name, ARGV[6]) }
end
if stored then return { stored, session.owner or '', name or '', session.epoch } end
if redis.call('LLEN', base .. ':runs') >= tonumber(ARGV[4]) then return redis.error_reply('TR queue_full') end
redis.call('RPUSH', base .. ':runs', ARGV[2])
keep(base .. ':runs')
append(ARGV[3])
remember(ARGV[7], ARGV[8], ARGV[1], C.idempotency_ttl)
commit(unpack(fields))
tell_owner('I')
return { ARGV[1], session.owner or '', name or '', session.epoch }
