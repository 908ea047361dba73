//: end
const draw = await build(mechanism);

/** Returns a report of a value; every call draws a new one. Throws a RangeError if the value is not in the domain. */
export function report(value) {
  return draw(value, randomWord);
}

/** For tests only: returns the report that given 64-bit words draw, as `ldpsql vectors` writes them. */
export function reportOf(value, words) {
  const each = words[Symbol.iterator]();
  return draw(value, () => each.next().value);
}

export const { fingerprint, claim, values } = mechanism;
