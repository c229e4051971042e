-- Answers an approval. ARGV: approval id, decision, approval_resolved payload, idempotency key, fingerprint,
-- tool_result payload (readers join it to the approval's block).
-- Returns the event.
if not open_session() then return redis.error_reply('TR not_found') end
local stored, conflict = replay(ARGV[4], ARGV[5])
if conflict then return conflict end
if stored then return stored end
local state = redis.call('HGET', base .. ':approvals', ARGV[1])
if not state then return redis.error_reply('TR not_found') end
if state ~= 'open' then return redis.error_reply('TR conflict') end
redis.call('HSET', base .. ':approvals', ARGV[1], ARGV[2])
local event = append(ARGV[3])
append(ARGV[6])
remember(ARGV[4], ARGV[5], event, C.idempotency_ttl)
commit()
tell_owner('A', ARGV[1], ARGV[2])
return event
