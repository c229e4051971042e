-- Writes of the owner that were acknowledged are lost: a failover lost them. ARGV: epoch, the number of the last one.
-- The ones that wait go on behind it; the log says what has happened before they say anything, unless that is the last
-- that it has said. Returns the session's number as it is then.
if not open_session() then return redis.error_reply('TR not_found') end
if session.epoch ~= ARGV[1] then return redis.error_reply('TR fenced') end
if tonumber(ARGV[2]) > session.op then
  session.op = tonumber(ARGV[2])
  if tonumber(redis.call('HGET', base, 'reset') or 0) ~= session.seq then reset_log(session.seq) end
  commit()
end
return session.op
