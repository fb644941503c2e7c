// Goal: so many requests of one caller, of one owner and of all wait at once, and a place is given back once.
import t from "tap";
import { OpenWaits } from "../../server/core/open-waits.ts";

t.test("each bound holds, and what is closed makes room", async (t) => {
  const waits = new OpenWaits({ perCaller: 2, perOwner: 3, perProcess: 4 });
  const open = (callerId: string, ownerId: string) => waits.open({ callerId, ownerId });
  const first = open("a", "one");
  t.ok(first && open("a", "one"));
  t.notOk(open("a", "one"), "a caller's third");
  t.ok(open("b", "one"));
  t.notOk(open("c", "one"), "an owner's fourth");
  t.ok(open("d", "two"));
  t.notOk(open("e", "three"), "the process's fifth");
  first?.();
  first?.();
  t.ok(open("e", "three"), "one place");
  t.notOk(open("f", "four"), "and no more");
});
