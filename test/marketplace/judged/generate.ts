// Writes listings.jsonl from kinds.txt and decoys.txt: `node --import=tsx test/marketplace/judged/generate.ts`.
import { readFileSync, writeFileSync } from "node:fs";
import { Random } from "../../helpers/random.ts";

const SEED = 20_261_127;
const GENUINE = 1_150;
const IMPOSTORS = 50;
const SPAM = 60;

export interface JudgedListing {
  id: string;
  /** What it truly sells, which the words do not decide. `spam` sells nothing of what it names. */
  kind: string;
  impostorOf?: string;
  name: string;
  description: string;
  category: string;
  tags: string[];
  parameters: string[];
  host: string;
  path: string;
  network: string;
  priceAtomic: number;
  status: "active" | "failing";
  settlements: number;
  payers: number;
  ageDays: number;
}

interface Kind {
  id: string;
  family: string;
  names: string[];
  descriptions: string[];
  paths: string[];
  parameters: string[];
  tags: string[];
}

const here = new URL("./", import.meta.url);
const list = (text = "") => text.split(";").map((part) => part.trim());
const rows = (file: string) =>
  readFileSync(new URL(file, here), "utf8")
    .split("\n")
    .filter((line) => line !== "" && !line.startsWith("#"))
    .map((line) => line.split(" | "));

const kinds = rows("kinds.txt").map(
  ([id = "", family = "", , names, descriptions, paths, parameters, tags]): Kind => ({
    id,
    family,
    names: list(names),
    descriptions: list(descriptions),
    paths: list(paths),
    parameters: list(parameters),
    tags: list(tags),
  }),
);

const seeded = new Random(SEED);
const below = (count: number) => seeded.int(0, count - 1);
const random = () => seeded.next();
const pick = <T>(from: readonly T[]): T => seeded.pick(from);
const chance = (share: number) => random() < share;

const STARTS = ["nim", "sky", "harb", "quil", "vero", "tal", "ost", "lum", "kest", "brine", "orch"];
const MIDDLES = ["ba", "lo", "ri", "ven", "do", "ma", "sto", "fi", "gra", "nel"];
const ENDS = ["works", "labs", "ly", "hq", "io", "stack", "point", "forge", "wise", "hub", "base"];
const TLDS = ["dev", "com", "io", "xyz", "app", "net"];
const PREFIXES = ["", "", "api.", "x402.", "pay."];

const brands = new Set<string>();
while (brands.size < 420) brands.add(`${pick(STARTS)}${pick(MIDDLES)}${pick(ENDS)}`);
/** Each brand sells in one family. */
const sellers = [...brands].map((brand) => ({
  brand,
  host: `${pick(PREFIXES)}${brand}.${pick(TLDS)}`,
  family: pick(kinds).family,
}));

const BOILERPLATE = [
  "Pay per call in USDC, no account.",
  "JSON over HTTP, no API key.",
  "For agents and developers.",
  "Real time data with x402 payments.",
  "No subscription: one price for each request.",
];

const NETWORKS = [
  "eip155:5042002",
  "eip155:5042002",
  "eip155:5042002",
  "eip155:8453",
  "eip155:8453",
  "eip155:84532",
  "eip155:137",
];
const PRICES = [
  500, 1_000, 1_000, 2_000, 5_000, 5_000, 10_000, 20_000, 50_000, 100_000, 500_000, 2_000_000,
];

/** Swaps, drops or doubles one letter of one word. */
function mistyped(text: string): string {
  const words = text.split(" ");
  const long = words.flatMap((word, index) => (word.length > 5 ? [index] : []));
  if (long.length === 0) return text;
  const at = pick(long);
  const word = words[at] ?? "";
  const place = 1 + below(word.length - 3);
  const [one = "", two = ""] = word.slice(place, place + 2);
  const change = pick([two + one, one, one + one + two]);
  words[at] = word.slice(0, place) + change + word.slice(place + 2);
  return words.join(" ");
}

/** A few sell a lot, most sell nothing yet. */
function sold(): { settlements: number; payers: number } {
  if (chance(0.45)) return { settlements: 0, payers: 0 };
  const payers = Math.ceil(random() ** 4 * 180);
  return { payers, settlements: payers + below(payers * 12) };
}

function facts() {
  return {
    network: pick(NETWORKS),
    priceAtomic: pick(PRICES),
    status: chance(0.06) ? ("failing" as const) : ("active" as const),
    ...sold(),
    ageDays: Math.round(random() * 2_000) / 10,
  };
}

function nameOf(kind: Kind, brand: string, address: string): string {
  const form = random();
  const name = pick(kind.names);
  const capital = `${brand.charAt(0).toUpperCase()}${brand.slice(1)}`;
  if (form < 0.5) return name;
  if (form < 0.7) return `${capital} ${name}`;
  if (form < 0.8) return `${name} by ${capital}`;
  if (form < 0.9) return capital;
  return address;
}

function descriptionOf(kind: Kind): string {
  if (chance(0.08)) return "";
  const sentences = [pick(kind.descriptions)];
  if (chance(0.3)) sentences.push(pick(kind.descriptions.filter((one) => one !== sentences[0])));
  const text = sentences.map((sentence) => `${sentence}.`);
  if (chance(0.5)) text.push(pick(BOILERPLATE));
  return text.join(" ");
}

let count = 0;
const nextId = () => `lst_judged${String((count += 1)).padStart(4, "0")}`;

function genuine(kind: Kind): JudgedListing {
  const fitting = sellers.filter(({ family }) => family === kind.family);
  const { brand, host } = pick(fitting.length > 0 ? fitting : sellers);
  const path = pick(kind.paths);
  const isMistyped = chance(0.06);
  const name = nameOf(kind, brand, `${host}${path}`);
  const description = descriptionOf(kind);
  return {
    id: nextId(),
    kind: kind.id,
    name: (isMistyped ? mistyped(name) : name).slice(0, 80),
    description: isMistyped ? mistyped(description) : description,
    category: chance(0.25) ? pick(["other", "data", "bazaar"]) : pick(kind.tags),
    tags: chance(0.5) ? kind.tags.filter(() => chance(0.7)) : [],
    parameters: chance(0.6) ? kind.parameters : [],
    host,
    path,
    ...facts(),
  };
}

function impostor(original: JudgedListing): JudgedListing {
  const { host } = pick(sellers.filter((one) => one.host !== original.host));
  const payers = below(2);
  return {
    ...original,
    ...facts(),
    id: nextId(),
    impostorOf: original.id,
    name: chance(0.5) ? original.name : `${original.name} ${pick(["Pro", "Plus", "2", "API"])}`,
    host,
    network: original.network,
    status: "active",
    payers,
    settlements: payers,
  };
}

function spam(): JudgedListing {
  const about = Array.from({ length: 14 }, () => pick(kinds));
  const { host } = pick(sellers);
  const words = about.flatMap(({ names, tags }) => [pick(names).toLowerCase(), pick(tags)]);
  const target = about[0] as Kind;
  const name = pick(target.names);
  return {
    id: nextId(),
    kind: "spam",
    name: chance(0.5)
      ? `${name} ${about
          .slice(1, 4)
          .map(({ tags }) => tags[0])
          .join(" ")}`.slice(0, 80)
      : "Best cheap API all in one",
    description: (chance(0.5)
      ? words.join(", ")
      : `${`${name} `.repeat(6)}${words.join(" ")}`
    ).slice(0, 500),
    category: pick(target.tags),
    tags: about.flatMap(({ tags }) => tags).slice(0, 20),
    parameters: about.flatMap(({ parameters }) => parameters).slice(0, 20),
    host,
    path: "/api",
    ...facts(),
    status: "active",
    payers: below(3),
    settlements: below(3) * 3,
  };
}

function decoy([kind = "", name = "", description = ""]: string[]): JudgedListing {
  const known = kinds.find(({ id }) => id === kind) as Kind;
  return { ...genuine(known), name, description: `${description}.`, status: "active" };
}

const listings: JudgedListing[] = [];
for (let index = 0; index < GENUINE; index += 1)
  listings.push(genuine(kinds[index % kinds.length] as Kind));
const popular = listings.filter(({ payers, status }) => payers >= 10 && status === "active");
for (let index = 0; index < IMPOSTORS; index += 1) listings.push(impostor(pick(popular)));
for (let index = 0; index < SPAM; index += 1) listings.push(spam());
listings.push(...rows("decoys.txt").map(decoy));

const lines = listings.map((listing) => JSON.stringify(listing));
writeFileSync(new URL("listings.jsonl", here), `${lines.join("\n")}\n`);
