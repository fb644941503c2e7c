// Goal: a template fills the form with rules that can be signed, and allows no third party; a device's groups contain each event once,
// and silencing the last device is noticed.
import t from "tap";
import {
  describeEvents,
  DEVICE_GROUPS,
  silencedBy,
} from "../../web/src/features/notifications/device-groups.ts";
import { URGENT_NAMES } from "../../web/src/features/notifications/words.ts";
import { firstToBuy, payeesOf } from "../../web/src/features/marketplace/seller-payees.ts";
import { checkRules, EMPTY_RULES, describeRules } from "../../web/src/features/rules/rules.ts";
import {
  entryOf,
  fill,
  templateIn,
  tickSellers,
  TEMPLATES,
  type Template,
} from "../../web/src/features/rules/templates.ts";
import type { Listing } from "../../web/src/lib/wire.ts";

const [SELLER, STRANGER] = [`0x${"1".repeat(40)}`, `0x${"2".repeat(40)}`];
const listing = (more: Partial<Listing>): Listing =>
  ({
    id: "lst_1",
    url: "https://own.example/stats",
    network: "eip155:5042002",
    payTo: SELLER,
    price: "0.001",
    maxPrice: "0.002",
    source: "built-in",
    uses: 0,
    thirdParty: { name: "Stats" },
    ...more,
  }) as Listing;
const LISTINGS = [
  listing({
    id: "lst_2",
    url: "https://own.example/words",
    price: "0.01",
    maximum: true,
    maxPrice: "0.05",
  }),
  listing({}),
  listing({ source: "bazaar", payTo: STRANGER, url: "https://news.example/a", uses: 3 }),
  listing({ network: "eip155:8453" }),
];
const SUGGESTED = payeesOf(LISTINGS, "eip155:5042002");
const [own, stranger] = SUGGESTED.map(entryOf) as [
  ReturnType<typeof entryOf>,
  ReturnType<typeof entryOf>,
];
const template = (id: string) => TEMPLATES.find((one) => one.id === id) as Template;

t.test("what a seller sells at one site is one payee, limited to its highest price", (t) => {
  t.match(SUGGESTED, [
    {
      address: SELLER,
      site: "https://own.example",
      lowest: "0.001",
      isByUse: true,
      isOwn: true,
    },
    { address: STRANGER, site: "https://news.example", uses: 3, isByUse: false, isOwn: false },
  ]);
  t.same(own, {
    address: SELLER,
    site: "https://own.example",
    label: "own.example",
    perPaymentLimit: "0.05",
  });
  t.equal(firstToBuy(LISTINGS, [own])?.id, "lst_1", "the cheapest that is allowed");
  t.equal(firstToBuy(LISTINGS, [{ address: SELLER, site: "https://other.example" }]), undefined);
  t.equal(firstToBuy(LISTINGS, []), undefined);
  t.same(payeesOf([], "eip155:5042002"), []);
  t.end();
});

t.test("each template can be signed as it is, and no third party is ticked", (t) => {
  for (const one of TEMPLATES) {
    const filled = fill(EMPTY_RULES, one, SUGGESTED);
    t.same(checkRules(filled, 0), {}, one.id);
    t.equal(templateIn(filled), one, one.id);
    t.same(filled.allowlist, one.withOwnSellers ? [own] : []);
    t.ok(describeRules(filled).length > 0);
    const early = fill(EMPTY_RULES, one, []);
    t.same(early.allowlist, [], "none while the marketplace is empty or loads");
    t.same(tickSellers(early, one, SUGGESTED), filled, "they may come later");
  }
  t.match(describeRules(fill(EMPTY_RULES, template("shop"), [])).join(" "), "approve");
  t.end();
});

t.test(
  "another template keeps a typed name and chosen payees, and no limit of the last one",
  (t) => {
    const research = fill(EMPTY_RULES, template("research"), SUGGESTED);
    const typed = { ...research, name: "Mine", allowlist: [...research.allowlist, stranger] };
    const shop = fill(typed, template("shop"), SUGGESTED);
    t.match(shop, { name: "Mine", dailyLimit: "0", perPaymentLimit: "", paymentsPerHour: "" });
    t.same(shop.allowlist, [stranger]);
    const edited = { ...own, perPaymentLimit: "0.01" };
    const kept = fill({ ...typed, allowlist: [edited] }, template("data"), SUGGESTED);
    t.same(kept.allowlist, [edited], "a limit that was changed stays, and the payee is there once");
    t.equal(fill(research, template("data"), SUGGESTED).name, "Data buyer");
    t.equal(templateIn({ ...research, dailyLimit: "3" }), null);
    t.equal(templateIn(fill(research, undefined, SUGGESTED)), "empty");
    t.end();
  },
);

t.test("each event of a device is in one group", (t) => {
  const grouped = DEVICE_GROUPS.flatMap(({ names }) => names);
  t.same(grouped.toSorted(), URGENT_NAMES.toSorted());
  t.equal(describeEvents(URGENT_NAMES), "everything");
  t.equal(describeEvents(["key.created", "payment.blocked"]), "some refusals, some account");
  t.end();
});

t.test("only the last device that shows a request or a new key is noticed", (t) => {
  const before = ["approval.requested", "key.created", "agent.funded"];
  t.same(silencedBy(before, ["agent.funded"], []), ["approval.requested", "key.created"]);
  t.same(silencedBy(before, [], [{ types: ["key.created"] }]), ["approval.requested"]);
  t.same(silencedBy(before, ["approval.requested", "key.created"], []), []);
  t.same(silencedBy(["agent.funded"], ["payment.blocked"], []), [], "it did not show them before");
  t.end();
});
