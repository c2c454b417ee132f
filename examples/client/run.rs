// Runs a network of a service from Rust: the library is loaded when the program runs, and no crate is needed.
//
//     rustc run.rs && ./run $(nnburst capi --client --path)/libnnburst.so camera pose
use std::env;
use std::ffi::{c_char, c_int, c_void, CStr, CString};
use std::mem::transmute_copy;
use std::process::exit;
use std::ptr::{null, null_mut};

extern "C" {
    fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

const RTLD_NOW: c_int = 2;
const SECOND: u64 = 1_000_000_000;

struct Library(*mut c_void);

impl Library {
    fn open(path: &str) -> Library {
        let path = CString::new(path).unwrap();
        let library = unsafe { dlopen(path.as_ptr(), RTLD_NOW) };
        assert!(!library.is_null(), "the library cannot be loaded");
        Library(library)
    }

    /// The function `name`, whose type the caller states as nnburst.h does.
    unsafe fn function<F>(&self, name: &str) -> F {
        let symbol = CString::new(name).unwrap();
        let found = dlsym(self.0, symbol.as_ptr());
        assert!(!found.is_null(), "{name} is not in the library");
        transmute_copy(&found)
    }

    fn check(&self, code: c_int) {
        if code != 0 {
            let message: extern "C" fn() -> *const c_char = unsafe { self.function("nnburst_error_message") };
            eprintln!("{code}: {}", unsafe { CStr::from_ptr(message()) }.to_string_lossy());
            exit(1);
        }
    }
}

type Made = *mut c_void;

fn main() {
    let words: Vec<String> = env::args().collect();
    if words.len() < 4 {
        eprintln!("usage: {} LIBRARY SERVICE NETWORK", words[0]);
        exit(2);
    }
    let library = Library::open(&words[1]);
    let (service, network) = (CString::new(&*words[2]).unwrap(), CString::new(&*words[3]).unwrap());
    let (mut device, mut model, mut burst, mut request): (Made, Made, Made, Made) =
        (null_mut(), null_mut(), null_mut(), null_mut());
    unsafe {
        let connect: extern "C" fn(*const c_char, u32, u64, *mut Made) -> c_int =
            library.function("nnburst_connect");
        let open_model: extern "C" fn(Made, *const c_char, u32, u64, *mut Made) -> c_int =
            library.function("nnburst_open_model");
        let open_burst: extern "C" fn(Made, *const c_void, usize, u64, *mut Made) -> c_int =
            library.function("nnburst_open_burst");
        let create_request: extern "C" fn(Made, *mut Made) -> c_int = library.function("nnburst_create_request");
        let bind: extern "C" fn(Made) -> c_int = library.function("nnburst_bind");
        let run: extern "C" fn(Made, u64) -> c_int = library.function("nnburst_run");
        let output_data: extern "C" fn(Made, u32) -> *const u8 = library.function("nnburst_output_data");
        let close_device: extern "C" fn(Made) = library.function("nnburst_close_device");

        library.check(connect(service.as_ptr(), 0, 10 * SECOND, &mut device));
        library.check(open_model(device, network.as_ptr(), 0, 10 * SECOND, &mut model));
        library.check(open_burst(model, null(), 0, SECOND, &mut burst));
        library.check(create_request(burst, &mut request));
        library.check(bind(request));
        library.check(run(request, SECOND));
        println!("ran: first byte {}", *output_data(request, 0));
        close_device(device);
    }
}
