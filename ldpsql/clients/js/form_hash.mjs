forms.hash = () => ([seed, y]) => ({ seed: String(seed), y });
