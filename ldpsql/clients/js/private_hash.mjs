structures.private_hash = ({ response }) => {
  const respond = structures.keep_or_spread(response);
  return (value, words) => {
    const seed = words();
    return [seed, respond(hashed(seed, value, response.size), words)];
  };
};
