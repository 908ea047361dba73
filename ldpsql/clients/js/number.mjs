const number = (value) =>
  typeof value === "number" || typeof value === "bigint" ? Number(value)
  : typeof value === "string" && value.trim() !== "" ? Number(value) : NaN;

const clipped = (value, low, high, clip) => (clip ? Math.min(Math.max(value, low), high) : value);
