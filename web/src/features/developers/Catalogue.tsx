import { Badge, EmptyState, Stack, TextInput } from "@mantine/core";
import { useInputState } from "@mantine/hooks";
import { queryOptions, useQuery } from "@tanstack/react-query";
import { Fragment, type ReactNode, useEffect } from "react";
import { useLocation } from "react-router";
import { SearchIcon } from "../../components/icons.tsx";
import { FramedRows } from "../../components/List.tsx";
import { QueryStatus } from "../../components/QueryStatus.tsx";
import { Skeleton } from "../../components/Skeleton.tsx";
import { api } from "../../lib/api.ts";
import { keys } from "../../lib/query-keys.ts";
import type { CatalogueEntry } from "../../lib/wire.ts";
import styles from "./Catalogue.module.css";

const catalogueQuery = queryOptions({
  queryKey: keys.catalogue,
  queryFn: async ({ signal }) =>
    (await api.get<{ items: CatalogueEntry[] }>("/api/errors", { signal })).items,
  staleTime: Number.POSITIVE_INFINITY,
});

/** Every error code of the API, from the server's own table. `#code` links to one. */
export function Catalogue(): ReactNode {
  const { hash } = useLocation();
  const query = useQuery(catalogueQuery);
  const { data } = query;
  const [search, setSearch] = useInputState("");
  const isLoaded = data !== undefined;
  useEffect(() => {
    if (isLoaded && hash !== "")
      document.getElementById(hash.slice(1))?.scrollIntoView({ block: "center" });
  }, [isLoaded, hash]);
  if (!data)
    return (
      <QueryStatus query={query} what="the catalogue" failed="The catalogue could not be loaded">
        <Skeleton shape="row" count={8} />
      </QueryStatus>
    );
  const needle = search.trim().toLowerCase();
  const shown = data.filter((entry) =>
    `${entry.code} ${entry.status} ${entry.title} ${entry.help}`.toLowerCase().includes(needle),
  );
  return (
    <Stack>
      <TextInput
        aria-label="Search error codes"
        placeholder="Code, status or word"
        leftSection={<SearchIcon size={16} />}
        value={search}
        onChange={setSearch}
      />
      {shown.length === 0 && <EmptyState title="No code matches" />}
      <FramedRows>
        {shown.map((entry) => (
          <li
            key={entry.code}
            id={entry.code}
            className={`list-row ${styles.entry}`}
            data-current={hash === `#${entry.code}`}
          >
            <span className={styles.status}>{entry.status}</span>
            <div>
              <p>
                <code>{entry.code}</code>{" "}
                {entry.retryable && (
                  <Badge color="sea" mod="plain">
                    can be retried
                  </Badge>
                )}
              </p>
              <p className={styles.title}>
                {entry.title}. <span>{withCode(entry.help)}</span>
              </p>
            </div>
          </li>
        ))}
      </FramedRows>
    </Stack>
  );
}

/** The table marks code with backticks. */
const withCode = (text: string): ReactNode =>
  text
    .split("`")
    .map((part, index) =>
      index % 2 === 1 ? (
        <code key={`${index}${part}`}>{part}</code>
      ) : (
        <Fragment key={`${index}${part}`}>{part}</Fragment>
      ),
    );
