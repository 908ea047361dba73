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
