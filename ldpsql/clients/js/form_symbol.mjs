forms.symbol = () => (at) => [String(at)];
