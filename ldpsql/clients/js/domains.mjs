//: domain_listed
// Decimals and moments are the same with fewer zeros behind the point, and moments may be a Date.
domains.listed = ({ type, values }) => {
  const key = (value) => {
    const text = String(value instanceof Date ? value.toJSON() : value);
    if (type === "date32[day]" && value instanceof Date) return text.slice(0, 10);
    if (!/^(decimal|timestamp)/.test(type)) return text;
    const plain = text.replace("T", " ").replace("Z", "");
    return plain.includes(".") ? plain.replace(/\.?0+$/, "") : plain;
  };
  const places = new Map(values.map((value, at) => [key(value), at]));
  return (value) => places.get(key(value));
};

//: domain_whole
domains.whole = ({ first, count, clip }) => (value) => {
  const at = clipped(number(value), first, first + count - 1, clip) - first;
  return Number.isInteger(at) && at >= 0 && at < count ? at : undefined;
};

//: domain_bins
domains.bins = ({ low, high, width, count, clip }) => (value) => {
  const inside = clipped(number(value), low, high, clip);
  return inside >= low && inside <= high ? Math.trunc(Math.min((inside - low) / width, count - 1)) : undefined;
};

//: domain_steps
domains.steps = ({ low, high, step, each, last, clip }) => (value) => {
  const steps = (clipped(number(value), low, high, clip) - low) / step, whole = Math.round(steps);
  return whole >= 0 && whole <= last && Math.abs(steps - whole) <= 1e-6 ? Math.floor(whole / each) : undefined;
};

//: domain_moments
// A Date, or text such as 2024-01-31 or 2024-01-31 12:00:00, which is UTC unless it names another zone. Other text, such as
// 2024-1-31, and days that do not exist are refused: Date would read them in the zone of the device, or as other days.
domains.moments = ({ unit, first, count, clip }) => (value) => {
  const text = typeof value === "string" ? value.trim().replace(" ", "T") : "";
  const [, day, clock, zone] = /^(\d{4}-\d\d-\d\d)(T[\d:.]+(Z|[+-]\d\d(?::?\d\d)?)?)?$/.exec(text) ?? [];
  const exists = day !== undefined && new Date(day).toJSON()?.startsWith(day);
  const time = value instanceof Date ? value.getTime() : exists ? Date.parse(clock && !zone ? text + "Z" : text) : NaN;
  const at = clipped(Math.floor(time / unit) - first, 0, count - 1, clip);
  return at >= 0 && at < count ? at : undefined;
};

//: domain_rows
domains.rows = ({ names, parts }) => {
  const places = parts.map(positions), sizes = parts.map(size);
  return (row) => names.reduce((at, name, i) => at * sizes[i] + places[i](row[name]), 0);
};
const size = (values) => values.count ?? values.values.length;

//: domain_pairs
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
