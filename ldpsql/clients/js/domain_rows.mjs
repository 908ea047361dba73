domains.rows = ({ names, parts }) => {
  const places = parts.map(positions), sizes = parts.map(size);
  return (row) => names.reduce((at, name, i) => at * sizes[i] + places[i](row[name]), 0);
};
const size = (values) => values.count ?? values.values.length;
