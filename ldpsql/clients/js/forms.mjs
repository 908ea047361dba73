//: form_value
const shown = (values) =>
  values.kind === "whole" ? (at) => values.first + at
  : values.kind === "rows" ? shownRow(values) : (at) => values.values[at];
const shownRow = ({ names, parts }) => (at) => {
  const row = Object.fromEntries(names.map((name) => [name, null]));
  for (let i = names.length - 1; i >= 0; i--) {
    const count = parts[i].count ?? parts[i].values.length;
    row[names[i]] = shown(parts[i])(at % count);
    at = Math.floor(at / count);
  }
  return row;
};
forms.value = (reports) => shown(reports.values ?? mechanism.values);

//: form_set
forms.set = () => (words) => words.map(String);

//: form_symbol
forms.symbol = () => (at) => [String(at)];

//: form_hash
forms.hash = () => ([seed, y]) => ({ seed: String(seed), y });

//: form_listed_hash
forms.listed_hash = ({ symbols }) => (at) => ({ seed: Math.floor(at / symbols), y: at % symbols });

//: form_node
forms.node = ({ seeds, symbols }) => (at) => {
  let level = 0;
  for (; at >= seeds[level] * symbols[level]; level++) at -= seeds[level] * symbols[level];
  return { level, seed: Math.floor(at / symbols[level]), y: at % symbols[level] };
};

//: form_pair
const pair = ({ keys, bins }, field, numbered) => {
  const key = shown(keys.values), count = keys.values.count ?? keys.values.values.length, cells = bins ?? 2;
  return (at) =>
    at < count * cells ? { key: key(Math.floor(at / cells)), [field]: numbered(at % cells) } : { key: null, [field]: null };
};

//: form_sign
forms.sign = (reports) => pair(reports, "sign", (cell) => 1 - 2 * cell);

//: form_bin
forms.bin = (reports) => pair(reports, "bin", (cell) => cell);
