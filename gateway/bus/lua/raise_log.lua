-- A reader was given events that the log has no longer: a failover lost them. ARGV: the last seq that it was given.
-- The log goes on above it, so that no number is given twice, and says so. Returns the last seq.
if not open_session() then return redis.error_reply('TR not_found') end
if session.seq < tonumber(ARGV[1]) then
  session.seq = tonumber(ARGV[1])
  append('{"type":"custom","kind":"log_reset","payload":{}}')
end
commit()
return session.seq
