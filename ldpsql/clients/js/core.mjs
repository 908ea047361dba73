//: core
const structures = {}, domains = {}, forms = {};

const source = globalThis.crypto ?? (await import("node:crypto")).webcrypto;
const buffer = new BigUint64Array(1024);
let left = 0;

// Each word of the platform's cryptographic generator is used once.
function randomWord() {
  if (left === 0) {
    source.getRandomValues(buffer);
    left = buffer.length;
  }
  const word = buffer[--left];
  buffer[left] = 0n;
  return word;
}

// A value that is refused is never part of the message.
function positions(values) {
  const place = domains[values.kind](values);
  return (value) => {
    const missing = value === null || value === undefined;
    const at = (missing ? values.null : place(value)) ?? (missing ? null : values.outside);
    if (at === null || at === undefined)
      throw new RangeError(missing ? "a missing value was to be perturbed" : "a value is outside the declared domain");
    return at;
  };
}

async function build(mechanism) {
  if (mechanism.values.kind === "rows" && mechanism.reports.form === "row") return structures.row(mechanism);
  const place = positions(mechanism.values), draw = await structures[mechanism.channel.structure](mechanism.channel);
  const show = forms[mechanism.reports.form](mechanism.reports);
  return (value, words) => {
    const at = place(value);
    return show(draw(at, words));
  };
}

async function inflated(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).json();
}

//: number
const number = (value) =>
  typeof value === "number" || typeof value === "bigint" ? Number(value)
  : typeof value === "string" && value.trim() !== "" ? Number(value) : NaN;

const clipped = (value, low, high, clip) => (clip ? Math.min(Math.max(value, low), high) : value);
