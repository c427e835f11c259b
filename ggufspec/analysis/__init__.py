"""From stored runs to statements: arms, acceptance, comparisons, and warnings about the measurement."""
