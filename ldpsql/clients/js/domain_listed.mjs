domains.listed = ({ values }) => {
  const places = new Map(values.map((value, at) => [String(value), at]));
  return (value) => places.get(String(value));
};
