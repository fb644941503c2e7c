import { Type, type Static } from "typebox";
import {
  AddressOutput,
  Amount,
  NetworkId,
  Nullable,
  Page,
  pageQuery,
  priceIsMaximum,
  Strict,
  ThirdParty,
  Timestamp,
  Id,
  Described,
  Detail,
} from "./common.ts";

export const ListingMethod = Type.Union([
  Type.Literal("GET"),
  Type.Literal("POST"),
  Type.Literal("PUT"),
  Type.Literal("PATCH"),
  Type.Literal("DELETE"),
]);
export const ListingStatus = Type.Union([
  Type.Literal("active"),
  Type.Literal("failing"),
  Type.Literal("paused"),
]);
const Name = Type.String({ minLength: 1, maxLength: 80, pattern: "\\S" });
const Description = Type.String({ maxLength: 500 });
const Category = Type.String({
  pattern: "^[a-z0-9][a-z0-9-]{0,39}$",
  description: "A short lower-case word such as `data`",
});
const Url = Type.String({ minLength: 8, maxLength: 2048 });

const Catalogue = Type.Object({
  catalogue: Type.String({
    description:
      "Found in the catalogue at this URL; nobody signed for it here. The texts come from the 402 response",
  }),
});

export const Listing = Type.Object({
  id: Id,
  mine: Type.Boolean({ description: "Created by the signed-in owner" }),
  source: Type.Union([
    Type.Literal("owner"),
    Type.Literal("bazaar", {
      description:
        "Found through a payment that settled here; the texts come from the seller's 402 response",
    }),
    Type.Literal("built-in"),
    Type.Literal("well-known", {
      description:
        "Found in the host's own `/.well-known/x402`; the texts come from the 402 response",
    }),
    Type.Literal("cell", {
      description:
        "Listed in another cell of this service, which `cell` names; the texts come from the 402 response",
    }),
    Catalogue,
  ]),
  cell: Type.Optional(Type.String()),
  url: Type.String(),
  host: Type.String(),
  method: ListingMethod,
  network: NetworkId,
  asset: AddressOutput,
  payTo: AddressOutput,
  price: Described(Amount, "Last seen price, USDC"),
  ...priceIsMaximum,
  maxPrice: Described(Amount, "The pinned price ceiling: a higher price is refused"),
  status: ListingStatus,
  flag: Nullable(
    Type.String({ description: "Why it is failing: `listing_mismatch`, `upstream_timeout`, ..." }),
  ),
  statusReason: Nullable(Type.String()),
  thirdParty: ThirdParty({
    name: Type.String(),
    description: Type.String(),
    category: Type.String(),
    sample: Nullable(Type.String()),
    mimeType: Nullable(Type.String()),
    tags: Type.Array(Type.String()),
  }),
  x402Version: Type.Integer(),
  uses: Type.Integer({ description: "Paid fetches by agents of this service" }),
  payers: Type.Integer({ description: "Wallets that paid it here in the last 30 days" }),
  similarTo: Nullable(
    Described(Id, "A listing of another seller with the same texts and more payers"),
  ),
  lastProbedAt: Nullable(Timestamp),
  createdAt: Timestamp,
  updatedAt: Timestamp,
});
export type ListingWire = Static<typeof Listing>;

/** A listing in a list. Short: the required members only. */
export const ListingSummary = Type.Object({
  ...Type.Partial(Listing).properties,
  id: Id,
  url: Type.String(),
  method: ListingMethod,
  network: NetworkId,
  price: Described(Amount, "Last seen price, USDC"),
  uses: Type.Integer({ description: "Paid fetches by agents of this service" }),
  thirdParty: ThirdParty({
    name: Type.String(),
    description: Type.String(),
    category: Type.String(),
    sample: Type.Optional(Nullable(Type.String())),
    mimeType: Type.Optional(Nullable(Type.String())),
    tags: Type.Optional(Type.Array(Type.String())),
  }),
});
export type ListingSummary = Static<typeof ListingSummary>;
export const ListingPage = Page(ListingSummary);
export const SuggestedListings = Type.Object({ items: Type.Array(Listing) });
/** NUL is refused in every field. */
const searchText = (minLength: number) =>
  Type.String({ minLength, maxLength: 200, pattern: "^[^\\u0000]*$" });
export const ListingQuery = Strict({
  search: Type.Optional(searchText(0)),
  category: Type.Optional(Type.String({ maxLength: 40 })),
  network: Type.Optional(NetworkId),
  scheme: Type.Optional(Type.String({ maxLength: 40 })),
  maxPrice: Type.Optional(Amount),
  status: Type.Optional(ListingStatus),
  mine: Type.Optional(Type.Literal("true", { description: "Only your own; needs a session" })),
  detail: Type.Optional(Described(Detail, "short: what an agent needs to choose (default full)")),
  ...pageQuery,
});
export type ListingQuery = Static<typeof ListingQuery>;

export const NewListing = Strict({
  url: Url,
  name: Name,
  description: Type.Optional(Description),
  category: Type.Optional(Category),
  method: Type.Optional(ListingMethod),
  maxPrice: Type.Optional(Amount),
});
export type NewListing = Static<typeof NewListing>;

export const ListingPatch = Strict(
  {
    name: Type.Optional(Name),
    description: Type.Optional(Description),
    category: Type.Optional(Category),
    maxPrice: Type.Optional(Amount),
    status: Type.Optional(Type.Union([Type.Literal("active"), Type.Literal("paused")])),
  },
  { minProperties: 1, examples: [{ maxPrice: "0.01", status: "active" }] },
);
export type ListingPatch = Static<typeof ListingPatch>;

export const ProbeRequest = Strict({ url: Url, method: Type.Optional(ListingMethod) });
export const ProbeResult = Type.Object({
  url: Type.String(),
  method: ListingMethod,
  price: Amount,
  ...priceIsMaximum,
  payTo: AddressOutput,
  network: NetworkId,
  asset: AddressOutput,
  x402Version: Type.Integer(),
  thirdParty: ThirdParty({
    description: Nullable(Type.String()),
    mimeType: Nullable(Type.String()),
    sample: Nullable(Type.String()),
  }),
});
export const Deleted = Type.Object({ success: Type.Literal(true) });

/** The protocol's Bazaar: the names are the protocol's, and unknown query keys are ignored, since newer clients may send them. */
export const DiscoveryQuery = Type.Object({
  type: Type.Optional(Type.String({ maxLength: 20 })),
  payTo: Type.Optional(Type.String({ maxLength: 64 })),
  scheme: Type.Optional(Type.String({ maxLength: 40 })),
  network: Type.Optional(Type.String({ maxLength: 64 })),
  extensions: Type.Optional(Type.String({ maxLength: 200 })),
  own: Type.Optional(
    Type.Literal("true", { description: "Without built-in listings and what catalogues named" }),
  ),
  limit: Type.Optional(Type.String({ pattern: "^([1-9][0-9]{0,2}|1000)$" })),
  offset: Type.Optional(Type.String({ pattern: "^(0|[1-9][0-9]{0,8})$" })),
});
export const DiscoverySearchQuery = Type.Object({
  query: searchText(1),
  type: Type.Optional(Type.String({ maxLength: 20 })),
  payTo: Type.Optional(Type.String({ maxLength: 64 })),
  scheme: Type.Optional(Type.String({ maxLength: 40 })),
  network: Type.Optional(Type.String({ maxLength: 64 })),
  extensions: Type.Optional(Type.String({ maxLength: 200 })),
  limit: Type.Optional(Type.String({ pattern: "^([1-9][0-9]{0,2}|1000)$" })),
  cursor: Type.Optional(Type.String({ pattern: "^(0|[1-9][0-9]{0,8})$" })),
});

const Anything = Type.Record(Type.String(), Type.Unknown());
export const DiscoveryItem = Type.Object({
  resource: Type.String(),
  type: Type.Literal("http"),
  x402Version: Type.Integer(),
  accepts: Type.Array(Anything),
  lastUpdated: Timestamp,
  description: Type.String(),
  mimeType: Type.Optional(Type.String()),
  serviceName: Type.Optional(Type.String()),
  tags: Type.Array(Type.String()),
  extensions: Type.Optional(Anything),
  metadata: Type.Object({
    listingId: Id,
    name: Type.String(),
    category: Type.String(),
    method: ListingMethod,
    status: ListingStatus,
    uses: Type.Integer(),
    source: Type.Optional(Catalogue),
    cell: Type.Optional(Type.String({ description: "The cell of this service that lists it" })),
  }),
});
export type DiscoveryItemWire = Static<typeof DiscoveryItem>;
export const DiscoveryPage = Type.Object({
  x402Version: Type.Literal(2),
  items: Type.Array(DiscoveryItem),
  pagination: Type.Object({
    limit: Type.Integer(),
    offset: Type.Integer(),
    total: Type.Integer(),
  }),
});
export const DiscoverySearchPage = Type.Object({
  x402Version: Type.Literal(2),
  resources: Type.Array(DiscoveryItem),
  partialResults: Type.Boolean(),
  pagination: Type.Object({ limit: Type.Integer(), cursor: Nullable(Type.String()) }),
});
