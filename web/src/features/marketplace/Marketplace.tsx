import { EmptyState, Group, NativeSelect, TextInput } from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { useInfiniteQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { AmountInput } from "../../components/AmountInput.tsx";
import { SearchIcon } from "../../components/icons.tsx";
import { List } from "../../components/List.tsx";
import { canonical, parseUsdc } from "../../lib/money.ts";
import { useParameter } from "../../lib/use-parameter.ts";
import { useInfo } from "../../shared/info.ts";
import { listingsQuery, toCategory } from "./api.ts";
import { ListingCard } from "./ListingCard.tsx";
import styles from "./Marketplace.module.css";

export function Marketplace({ mine }: { mine: boolean }): ReactNode {
  const [text, setText] = useParameter("search");
  const [price, setPrice] = useParameter("maxPrice");
  const [category, setCategory] = useParameter("category");
  const [network, setNetwork] = useParameter("network");
  const networks = useInfo()?.networks ?? [];
  const [search] = useDebouncedValue(text.trim(), 250);
  const [maxPrice] = useDebouncedValue(price.trim(), 250);
  const cap = parseUsdc(maxPrice) === undefined ? undefined : canonical(maxPrice);
  const query = useInfiniteQuery(
    listingsQuery({
      search: search === "" ? undefined : search,
      category: category === "" ? undefined : category,
      network: network === "" ? undefined : network,
      maxPrice: cap,
      mine,
    }),
  );
  const isFiltered = search !== "" || category !== "" || network !== "" || cap !== undefined;

  return (
    <section aria-label={mine ? "My listings" : "Listings"}>
      <Group gap="sm" mb="md" align="flex-start">
        <TextInput
          flex="2 1 260px"
          label="Search"
          placeholder="What you need, or a name or host"
          leftSection={<SearchIcon size={16} />}
          value={text}
          onChange={setText}
        />
        <TextInput
          flex="1 1 140px"
          label="Category"
          placeholder="data"
          value={category}
          onChange={(event) => {
            setCategory(toCategory(event.currentTarget.value));
          }}
        />
        <NativeSelect
          flex="1 1 140px"
          label="Network"
          value={network}
          onChange={(event) => {
            setNetwork(event.currentTarget.value);
          }}
          data={[
            { value: "", label: "Any" },
            ...networks.map(({ id, name }) => ({ value: id, label: name })),
          ]}
        />
        <AmountInput
          flex="1 1 140px"
          label="Price up to"
          placeholder="Any"
          value={price}
          onChange={setPrice}
        />
      </Group>
      <List
        query={query}
        what="listings"
        failed="The marketplace could not be loaded"
        className={styles.grid}
        empty={
          <EmptyState
            title={
              isFiltered
                ? "No listing matches"
                : mine
                  ? "You have no listings yet"
                  : "No listings yet"
            }
            description={
              isFiltered
                ? "Change the search or the filters."
                : "Anyone who sells an API over x402 can list it here. Purser reads its terms from its 402 response."
            }
          />
        }
      >
        {(listing) => <ListingCard key={listing.id} listing={listing} />}
      </List>
    </section>
  );
}
