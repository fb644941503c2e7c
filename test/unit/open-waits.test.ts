// Goal: open waits are bounded by caller, by owner and in total, and a place is released only once.
import t from "tap";
import { OpenWaits } from "../../server/core/open-waits.ts";

t.test("each bound holds, and a closed wait makes room", async (t) => {
  const waits = new OpenWaits({ perCaller: 2, perOwner: 3, perProcess: 4 });
  const open = (callerId: string, ownerId: string) => waits.open({ callerId, ownerId });
  const first = open("a", "one");
  t.ok(first && open("a", "one"));
  t.notOk(open("a", "one"), "a third of one caller");
  t.ok(open("b", "one"));
  t.notOk(open("c", "one"), "a fourth of one owner");
  t.ok(open("d", "two"));
  t.notOk(open("e", "three"), "a fifth of the process");
  first?.();
  first?.();
  t.ok(open("e", "three"), "one place");
  t.notOk(open("f", "four"), "and no more");
});
