// A Date, or text such as 2024-01-31 or 2024-01-31 12:00:00, which is UTC unless it names another zone.
domains.moments = ({ unit, first, count, clip }) => (value) => {
  const text = typeof value === "string" ? value.trim().replace(" ", "T") : "";
  const zoned = /T.*(Z|[+-]\d\d(:?\d\d)?)$/.test(text) || !text.includes("T") ? text : text + "Z";
  const time = value instanceof Date ? value.getTime() : Date.parse(zoned);
  const at = clipped(Math.floor(time / unit) - first, 0, count - 1, clip);
  return at >= 0 && at < count ? at : undefined;
};
