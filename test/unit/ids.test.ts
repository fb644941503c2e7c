// Goal: no two ids are equal, and ids sort by the time at which they were made.
import t from "tap";
import { newId } from "../../server/core/ids.ts";

const ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz";
const millisecondsOf = (id: string): number =>
  Array.from(id.slice(4, 14)).reduce((sum, letter) => sum * 32 + ALPHABET.indexOf(letter), 0);

t.test("many ids in the same milliseconds", async (t) => {
  const beforeMs = Date.now();
  const ids = Array.from({ length: 50_000 }, () => newId("pay"));
  const afterMs = Date.now();
  t.equal(new Set(ids).size, ids.length);
  t.same(
    ids.filter((id) => !/^pay_[0-9a-hjkmnp-tv-z]{26}$/.test(id)),
    [],
  );
  const times = ids.map(millisecondsOf);
  t.ok(times.every((time) => time >= beforeMs && time <= afterMs));
  t.ok(times.every((time, index) => index === 0 || time >= (times[index - 1] ?? 0)));
  // 50 000 ids: each character must have appeared at each of the 16 places.
  for (let place = 14; place < 30; place += 1)
    t.equal(new Set(ids.map((id) => id[place])).size, ALPHABET.length, `place ${place}`);
});
