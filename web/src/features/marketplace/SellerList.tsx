import { Button, EmptyState, Group, Stack, Text, TextInput } from "@mantine/core";
import { useDebouncedValue, useInputState } from "@mantine/hooks";
import { useInfiniteQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Address } from "../../components/Address.tsx";
import { List } from "../../components/List.tsx";
import { Price } from "../../components/Price.tsx";
import { listingsQuery } from "./api.ts";
import styles from "./Marketplace.module.css";

export interface SellerListProps {
  onPick: (entry: { address: string; label: string }) => void;
  has: (address: string) => boolean;
}

/** The marketplace as a list of payees. */
export function SellerList({ onPick, has }: SellerListProps): ReactNode {
  const [text, setText] = useInputState("");
  const [search] = useDebouncedValue(text.trim(), 250);
  const list = useInfiniteQuery(listingsQuery({ search: search === "" ? undefined : search }));
  return (
    <Stack gap="sm">
      <TextInput
        aria-label="Search sellers"
        placeholder="Search"
        data-autofocus
        value={text}
        onChange={setText}
      />
      <List
        query={list}
        what="sellers"
        failed="The marketplace could not be read"
        placeholders={3}
        empty={<EmptyState title="No sellers found" />}
      >
        {(listing) => (
          <li key={listing.id} className={styles.seller}>
            <Group justify="space-between" wrap="nowrap" py="sm">
              <Stack gap={0} miw={0}>
                <strong>{listing.thirdParty.name}</strong>
                <Text span c="dimmed" size="sm">
                  {listing.host} · <Price of={listing} />
                </Text>
                <Address value={listing.payTo} copy={false} />
              </Stack>
              <Button
                size="xs"
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
            </Group>
          </li>
        )}
      </List>
    </Stack>
  );
}
