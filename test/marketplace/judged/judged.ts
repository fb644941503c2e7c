/** The judged set: listings, queries, and how well each listing serves each query (0 to 3). */
import { readFileSync } from "node:fs";
import type { JudgedListing } from "./generate.ts";

export type { JudgedListing } from "./generate.ts";

export interface JudgedQuery {
  text: string;
  network?: string;
  maxPriceAtomic?: number;
  /** A ranking is not tuned on it. */
  heldOut: boolean;
  grade(listing: JudgedListing): number;
}

const read = (file: string) =>
  readFileSync(new URL(file, import.meta.url), "utf8")
    .split("\n")
    .filter((line) => line !== "" && !line.startsWith("#"));

export const listings = read("listings.jsonl").map((line) => JSON.parse(line) as JudgedListing);

/** The kinds that are somewhat near to each kind. */
const near = new Map(
  read("kinds.txt").map((line) => {
    const [id = "", , others = ""] = line.split(" | ");
    return [id, others.split(",")];
  }),
);

/** Whatever a listing sells, a copy, a broken endpoint and spam serve nobody as well. */
function lowered(grade: number, { kind, impostorOf, status }: JudgedListing): number {
  if (kind === "spam") return 0;
  if (impostorOf !== undefined) return Math.min(grade, 1);
  return status === "failing" ? Math.max(grade - 1, 0) : grade;
}

function kindQuery(line: string, heldOut: boolean): JudgedQuery {
  const [wanted = "", text = "", filters = ""] = line.split(" |").map((part) => part.trim());
  const grades = new Map<string, number>();
  for (const kind of wanted.split(" "))
    grades.set(kind.replace("~", ""), kind.startsWith("~") ? 2 : 3);
  const named = Array.from(grades.keys());
  for (const other of named.flatMap((kind) => near.get(kind) ?? []))
    if (!grades.has(other)) grades.set(other, 1);
  const { network, maxPrice } = Object.fromEntries(
    filters.split(";").map((filter) => filter.split("=")),
  ) as { network?: string; maxPrice?: string };
  return {
    text,
    heldOut,
    ...(network === undefined ? {} : { network }),
    ...(maxPrice === undefined ? {} : { maxPriceAtomic: Math.round(Number(maxPrice) * 1e6) }),
    grade: (listing) => lowered(grades.get(listing.kind) ?? 0, listing),
  };
}

/** A person who looks for one seller, by its host, its name or the address of an endpoint. */
function sellerQueries(): Omit<JudgedQuery, "heldOut">[] {
  const honest = listings.filter(
    ({ kind, impostorOf }) => kind !== "spam" && impostorOf === undefined,
  );
  const hosts = [...new Set(honest.map(({ host }) => host))].sort();
  const chosen = hosts.filter((_, index) => index % 9 === 4);
  return chosen.map((host, index) => {
    const brand = host.split(".").at(-2) ?? host;
    const [first] = honest.filter((listing) => listing.host === host) as [JudgedListing];
    const text = [host, brand, `${host}${first.path}`, `https://${host}${first.path}`][
      index % 4
    ] as string;
    const isOneEndpoint = index % 4 > 1;
    return {
      text,
      grade: (listing) => {
        if (listing.host !== host) return 0;
        if (isOneEndpoint && listing.path !== first.path) return lowered(2, listing);
        return lowered(3, listing);
      },
    };
  });
}

export const queries: JudgedQuery[] = [
  ...read("queries.txt").map((line, index) => kindQuery(line, index % 3 === 2)),
  ...sellerQueries().map((query, index) => ({ ...query, heldOut: index % 3 === 2 })),
];

/** Within the filters of a query. */
export const isWithin = (
  { network, maxPriceAtomic }: JudgedQuery,
  listing: JudgedListing,
): boolean =>
  (network === undefined || listing.network === network) &&
  (maxPriceAtomic === undefined || listing.priceAtomic <= maxPriceAtomic);

const gain = (grades: readonly number[]) =>
  grades
    .slice(0, 5)
    .reduce((sum, grade, index) => sum + (2 ** grade - 1) / Math.log2(index + 2), 0);

/** nDCG@5 of a result, from 0 to 1; undefined if no listing serves the query. */
export function ndcg(query: JudgedQuery, result: readonly JudgedListing[]): number | undefined {
  const ideal = listings
    .filter((listing) => isWithin(query, listing))
    .map((listing) => query.grade(listing))
    .sort((one, other) => other - one);
  if ((ideal[0] ?? 0) === 0) return undefined;
  return gain(result.map((listing) => query.grade(listing))) / gain(ideal);
}
