forms.set = () => (words) => words.map(String);
