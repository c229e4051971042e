-- Writes of the owner that were acknowledged are lost: a failover lost them. ARGV: epoch, the number of the last one.
-- The ones that wait go on behind it. Returns the session's number as it is then.
if not open_session() then return redis.error_reply('TR not_found') end
if session.epoch ~= ARGV[1] then return redis.error_reply('TR fenced') end
session.op = math.max(session.op, tonumber(ARGV[2]))
commit()
return session.op
