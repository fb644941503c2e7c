import { type ReactNode, useEffect, useRef } from "react";
import { NavLink, useLocation } from "react-router";
import styles from "./Tabs.module.css";

interface TabsProps {
  label: string;
  items: readonly { to: string; label: string; end?: boolean }[];
  /** The content of the open tab. */
  children: ReactNode;
}

/** Tabs with their own URLs, so that back, reload and deep links work. */
export function Tabs({ label, items, children }: TabsProps): ReactNode {
  const root = useRef<HTMLDivElement>(null);
  const { pathname } = useLocation();
  const shown = useRef(pathname);
  useEffect(() => {
    if (shown.current === pathname) return;
    shown.current = pathname;
    // On a phone the content is below the screen, or its beginning above it.
    if (matchMedia("(max-width: 900px)").matches) root.current?.scrollIntoView();
  }, [pathname]);
  return (
    <div ref={root} className={styles.root}>
      <nav className={styles.tabs} aria-label={label}>
        {items.map((item) => (
          <NavLink
            key={item.to}
            to={item.to}
            end={item.end}
            replace
            preventScrollReset
            className={styles.tab}
          >
            {item.label}
          </NavLink>
        ))}
      </nav>
      {children}
    </div>
  );
}
