"""A walk ends, whatever it meets."""

from types import SimpleNamespace

from webtune.fingerprint.content import content_of


def test_circles_end(holding):
    ring = [1]
    ring.append(ring)
    table = {}
    table["self"] = table
    held = SimpleNamespace()
    held.value = held

    def again(p):
        return again(p)

    for value in (ring, table, held, again):
        assert content_of(holding(value)) == content_of(holding(value))


def test_what_is_too_deep_or_too_much_is_known_by_its_type(holding):
    deep = value = []
    for _ in range(100):
        value.append([])
        value = value[0]
    value.append("bottom")
    assert "…list" in content_of(holding(deep))
    assert "bottom" not in content_of(holding(deep))
    assert "…list" in content_of(holding([[object()] for _ in range(20_000)]))


def test_objects_that_raise_when_looked_at_are_known_by_their_type(holding):
    class Hostile:
        def __getattr__(self, name):
            raise RuntimeError(name)

        def __iter__(self):
            raise RuntimeError

        def __len__(self):
            raise RuntimeError

    class Refusing(dict):
        def items(self):
            raise RuntimeError

    assert "Hostile" in content_of(holding(Hostile()))
    assert "Refusing" in content_of(holding(Refusing()))
