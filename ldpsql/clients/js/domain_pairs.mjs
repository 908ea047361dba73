// A set as a Map, as a list of { key, value }, or as an object whose names are the keys: the position and the place of each pair.
domains.pairs = ({ keys, low, high, clip, drop_missing, drop_unknown }) => {
  const place = domains[keys.kind](keys), outside = "a key or a value of a set is outside what was declared";
  const object = (given) => {
    if (Object.prototype.toString.call(given) === "[object Object]") return given;
    throw new RangeError("a set must be a Map, a list of { key, value } or an object");
  };
  const pairs = (set) =>
    Array.isArray(set) ? set.map((pair) => [object(pair ?? {}).key, pair?.value])
    : set instanceof Map ? [...set] : Object.entries(object(set));
  return (set) => {
    const out = new Map();
    for (const [key, value] of pairs(set)) {
      if ((key ?? null) === null || (value ?? null) === null) {
        if (drop_missing) continue;
        throw new RangeError("a key or a value in a set is missing");
      }
      const at = place(key), held = clipped(number(value), low, high, clip);
      if (at === undefined && drop_unknown) continue;
      if (at === undefined || !(held >= low && held <= high)) throw new RangeError(outside);
      if (out.has(at)) throw new RangeError("a set holds a key twice");
      out.set(at, Math.min((held - low) / (high - low), 1));
    }
    return [...out];
  };
};
