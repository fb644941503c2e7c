import { TextInput } from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { useInfiniteQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { AmountInput } from "../../components/AmountInput.tsx";
import { EmptyState } from "../../components/EmptyState.tsx";
import { SearchIcon } from "../../components/icons.tsx";
import { LoadMore } from "../../components/LoadMore.tsx";
import { QueryStatus } from "../../components/QueryStatus.tsx";
import { Skeleton } from "../../components/Skeleton.tsx";
import { canonical, parseUsdc } from "../../lib/money.ts";
import { useParameter } from "../../lib/use-parameter.ts";
import { listingsQuery, toCategory } from "./api.ts";
import { ListingCard } from "./ListingCard.tsx";
import styles from "./Marketplace.module.css";

export function Marketplace({ mine }: { mine: boolean }): ReactNode {
  const [text, setText] = useParameter("search");
  const [price, setPrice] = useParameter("maxPrice");
  const [category, setCategory] = useParameter("category");
  const [search] = useDebouncedValue(text.trim(), 250);
  const [maxPrice] = useDebouncedValue(price.trim(), 250);
  const cap = parseUsdc(maxPrice) === undefined ? undefined : canonical(maxPrice);
  const query = useInfiniteQuery(
    listingsQuery({
      search: search === "" ? undefined : search,
      category: category === "" ? undefined : category,
      maxPrice: cap,
      mine,
    }),
  );
  const items = query.data?.pages.flatMap((page) => page.items) ?? [];
  const isFiltered = search !== "" || category !== "" || cap !== undefined;

  return (
    <section aria-label={mine ? "My listings" : "Listings"}>
      <div className={styles.tools}>
        <TextInput
          className={styles.search}
          label="Search"
          placeholder="Name, host or description"
          leftSection={<SearchIcon size={16} />}
          value={text}
          onChange={(event) => {
            setText(event.currentTarget.value);
          }}
        />
        <TextInput
          className={styles.small}
          label="Category"
          placeholder="data"
          value={category}
          onChange={(event) => {
            setCategory(toCategory(event.currentTarget.value));
          }}
        />
        <div className={styles.small}>
          <AmountInput label="Price up to" placeholder="Any" value={price} onChange={setPrice} />
        </div>
      </div>
      <QueryStatus query={query} what="listings" failed="The marketplace could not be loaded">
        <Skeleton shape="block" count={3} />
      </QueryStatus>
      {query.isSuccess && items.length === 0 && (
        <EmptyState
          title={
            isFiltered
              ? "No listing matches"
              : mine
                ? "You have no listings yet"
                : "No listings yet"
          }
        >
          {isFiltered
            ? "Change the search or the filters."
            : "Anyone who sells an API over x402 can list it here. Purser reads its terms from its 402 response."}
        </EmptyState>
      )}
      <ul className={styles.grid}>
        {items.map((listing) => (
          <ListingCard key={listing.id} listing={listing} />
        ))}
      </ul>
      <LoadMore query={query} what="listings" />
    </section>
  );
}
