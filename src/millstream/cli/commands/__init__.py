"""Commands of `millstream`, in folders by task, one module for each."""
