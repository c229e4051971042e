-- A socket still holds registrations that were taken from it while its node was out of contact. ARGV: client_id, holder.
-- Returns 1 when it holds it (again), 0 when the registration has ended or another socket has it.
if not open_session() then return 0 end
local holder = redis.call('HGET', client_key(ARGV[1]), 'holder')
if not holder or (holder ~= '' and holder ~= ARGV[2]) then return 0 end
hold(ARGV[1], ARGV[2])
return 1
