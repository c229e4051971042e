-- A socket that held a registration is gone. ARGV: client_id, holder. Its lifetime begins to count, unless somebody else
-- holds it by now. Returns 1 when it was released.
if not open_session() then return 0 end
return release(ARGV[1], ARGV[2]) and 1 or 0
