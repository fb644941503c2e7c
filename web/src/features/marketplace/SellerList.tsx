import { TextInput } from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { useInfiniteQuery } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { Address } from "../../components/Address.tsx";
import { Button } from "../../components/Button.tsx";
import { EmptyState } from "../../components/EmptyState.tsx";
import { Muted, Stack } from "../../components/Layout.tsx";
import { LoadMore } from "../../components/LoadMore.tsx";
import { Money } from "../../components/Money.tsx";
import { QueryStatus } from "../../components/QueryStatus.tsx";
import { Skeleton } from "../../components/Skeleton.tsx";
import { listingsQuery } from "./api.ts";
import styles from "./SellerList.module.css";

export interface SellerListProps {
  onPick: (entry: { address: string; label: string }) => void;
  has: (address: string) => boolean;
}

/** The marketplace as a list of payees. */
export function SellerList({ onPick, has }: SellerListProps): ReactNode {
  const [text, setText] = useState("");
  const [search] = useDebouncedValue(text.trim(), 250);
  const list = useInfiniteQuery(listingsQuery({ search: search === "" ? undefined : search }));
  const items = list.data?.pages.flatMap((page) => page.items) ?? [];
  return (
    <Stack gap={3}>
      <TextInput
        aria-label="Search sellers"
        placeholder="Search"
        data-autofocus
        value={text}
        onChange={(event) => {
          setText(event.currentTarget.value);
        }}
      />
      <QueryStatus query={list} what="sellers" failed="The marketplace could not be read">
        <Skeleton shape="row" count={3} />
      </QueryStatus>
      {list.isSuccess && items.length === 0 && <EmptyState title="No sellers found" />}
      <ul className={styles.list}>
        {items.map((listing) => (
          <li key={listing.id} className={styles.item}>
            <div className={styles.text}>
              <strong>{listing.thirdParty.name}</strong>
              <Muted>
                {listing.host} · <Money amount={listing.price} />
              </Muted>
              <Address value={listing.payTo} copy={false} />
            </div>
            <Button
              size="small"
              disabled={has(listing.payTo)}
              onClick={() => {
                onPick({ address: listing.payTo, label: listing.thirdParty.name });
              }}
            >
              {has(listing.payTo) ? (
                "Added"
              ) : (
                <>
                  Add<span className="sr-only"> {listing.thirdParty.name}</span>
                </>
              )}
            </Button>
          </li>
        ))}
      </ul>
      <LoadMore query={list} what="sellers" />
    </Stack>
  );
}
