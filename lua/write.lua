-- Writes the changed states. A state of one amount is written over the stored one in place, and the
-- expiry is not set if the stored one is late enough.
--@ moved
for key = 1, #KEYS do
  local ask = moved[key]
  if ask then
    local algorithm, at, stored = ask[ALGORITHM], ats[key], stored_ats[key]
    local raw, lasts, expires, whole
    if used[key] == 0 then
      call('DEL', KEYS[key])
      raw, stored_ats[key] = false, nil
    else
      if algorithm >= BUCKET then
        --@ bucket.write
      elseif algorithm == FIXED_WINDOW then
        --@ fixed_window.write
      else
        raw, lasts, expires, whole = stores[algorithm](key, ask)
      end
      lasts = lasts and not replay
      local expiry = lasts or expiries[expires]
      if not expiry then
        -- Formatting a number is slow, and writes of one moment mostly have the same expiry.
        expiry = string.format('%d', expires - expiry_from)
        expiries[expires] = expiry
      end
      if stored and not whole then
        if raw then call('SETRANGE', KEYS[key], '0', raw) end
        if not lasts then call(expire_command, KEYS[key], expiry) end
      elseif lasts then
        call('SET', KEYS[key], raw, 'KEEPTTL')
      else
        call('SET', KEYS[key], raw, expires_word, expiry)
      end
    end
    if changed then
      if raw == nil then raw = call('GET', KEYS[key]) end
      opened[key], moved[key], values[key] = nil, nil, raw
    end
  end
end
